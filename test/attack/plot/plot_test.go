package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func series(f func(i int) float64) (t, y []float64) {
	for i := range 200 {
		t, y = append(t, float64(i*5)), append(y, f(i))
	}
	return t, y
}

func TestTrendOf(t *testing.T) {
	t.Parallel()
	noise := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		f    func(i int) float64
		flat bool
	}{
		"Constant":          {func(int) float64 { return 100 }, true},
		"Noise":             {func(int) float64 { return 100 + 40*noise.Float64() }, true},
		"SawTeeth":          {func(i int) float64 { return 100 + float64(i%20) }, true},
		"SpikesOfFaults":    {func(i int) float64 { return 10 + 5000*float64(1-min(1, i%12)) }, true},
		"Falling":           {func(i int) float64 { return 300 - float64(i) }, true},
		"ALeak":             {func(i int) float64 { return 100 + 0.1*float64(i) + 10*noise.Float64() }, false},
		"ALeakBehindSpikes": {func(i int) float64 { return 100 + 0.2*float64(i) + 5000*float64(1-min(1, i%12)) }, false},
		"AStepInTheMiddle":  {func(i int) float64 { return 100 + float64(i/100)*100 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			at, y := series(c.f)
			require.Equal(t, c.flat, TrendOf(at, y, 0).Flat, "%+v", TrendOf(at, y, 0))
		})
	}
	at, y := series(func(i int) float64 { return float64(i) / 100 })
	require.True(t, TrendOf(at, y, 5).Flat, "what does not matter")
	require.False(t, TrendOf(nil, nil, 5).Flat, "nothing is known")
}

func TestSVGIsXML(t *testing.T) {
	t.Parallel()
	at, y := series(func(i int) float64 { return float64(i) })
	var b strings.Builder
	require.NoError(t, SVG(&b, "a < b & c", []Series{{Name: "rows", Unit: "<rows>", T: at, Y: y, From: 100}, {Name: "none"}}, []Mark{{60, "kill & roll", false}}))
	d := xml.NewDecoder(strings.NewReader(b.String()))
	lines := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "polyline" {
			lines++
		}
	}
	require.Equal(t, 4, lines)
}
