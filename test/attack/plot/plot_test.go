package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a soak looks like: a sample each 5 s of an hour, judged after its first quarter.
const (
	every  = 5
	minute = 60
	hour   = 60 * minute
)

func seriesOf(lasts float64, f func(t float64) float64) (s Series) {
	for t := float64(every); t < lasts; t += every {
		s.Samples = append(s.Samples, Point{t, f(t)})
	}
	return s
}

// during says whether t is in the first so many seconds of a minute from its 20th on, when a fault strikes.
func during(t, seconds float64) bool {
	at := math.Mod(t, minute) - 20
	return at >= 0 && at < seconds
}

func TestJudge(t *testing.T) {
	t.Parallel()
	memory, latency := Bound{Least: 15}, Bound{50, 0.3}
	for name, c := range map[string]struct {
		bound Bound
		f     func(noise *rand.Rand, t float64) float64
		want  Verdict
	}{
		"Constant":               {memory, func(_ *rand.Rand, _ float64) float64 { return 100 }, Flat},
		"Noise":                  {memory, func(n *rand.Rand, _ float64) float64 { return 100 + 15*n.NormFloat64() }, Flat},
		"Falling":                {memory, func(_ *rand.Rand, t float64) float64 { return 300 - t/60 }, Flat},
		"AMinutesSawTeeth":       {memory, func(_ *rand.Rand, t float64) float64 { return 100 + math.Mod(t, minute) }, Flat},
		"AFaultAMinute":          {latency, func(n *rand.Rand, t float64) float64 { return spiky(n, t, 200) }, Flat},
		"AFaultThatCostsAMinute": {latency, func(n *rand.Rand, t float64) float64 { return spiky(n, t, 200) + 9000*float64(int(t/minute)%7/6) }, Flat},
		"WarmingUp":              {memory, func(n *rand.Rand, t float64) float64 { return 150 - 100*math.Exp(-t/300) + 5*n.NormFloat64() }, Flat},
		"AStepOfWarmingUp":       {memory, func(n *rand.Rand, t float64) float64 { return 100 + 40*step01(t, 20*minute) + 5*n.NormFloat64() }, Flat},
		"AMiBAMinute":            {memory, func(n *rand.Rand, t float64) float64 { return 150 + t/minute + 10*n.NormFloat64() }, Rises},
		"AGoroutineAMinute":      {memory, func(n *rand.Rand, t float64) float64 { return spiky(n, t, 250) + t/minute }, Rises},
		"AP99ThatDoubles":        {latency, func(n *rand.Rand, t float64) float64 { return spiky(n, t, 200) * (1 + t/hour) }, Rises},
		"AStepInTheMiddle":       {memory, func(n *rand.Rand, t float64) float64 { return 100 + 60*step01(t, 37.5*minute) + n.NormFloat64() }, Rises},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				noise := rand.New(rand.NewPCG(seed, 1))
				s := seriesOf(hour, func(t float64) float64 { return c.f(noise, t) })
				trend := s.Judge(hour/4, minute, c.bound)
				require.Equal(t, c.want, trend.Verdict, "seed %d: %+v", seed, trend)
			}
		})
	}
}

// spiky is a level with a tenth of noise, and 50 times as much for 10 seconds of each minute.
func spiky(noise *rand.Rand, t, level float64) float64 {
	v := level * (1 + 0.1*noise.NormFloat64())
	if during(t, 10) {
		return 50 * v
	}
	return v
}

func step01(t, at float64) float64 {
	if t < at {
		return 0
	}
	return 1
}

func TestJudge_ASoakTooShortToSayAnythingSaysNothing(t *testing.T) {
	t.Parallel()
	for _, lasts := range []float64{0, minute, 6*minute + 10} { // from the third minute on: four whole cycles
		s := seriesOf(lasts, func(float64) float64 { return 100 })
		require.Equal(t, Unknown, s.Judge(2*minute, minute, Bound{15, 0}).Verdict)
	}
	s := seriesOf(7*minute+10, func(float64) float64 { return 100 })
	require.Equal(t, Flat, s.Judge(2*minute, minute, Bound{15, 0}).Verdict)
}

func TestJudge_ChanceSeldomLooksLikeALeak(t *testing.T) {
	t.Parallel()
	const runs = 500
	wrong := 0
	for seed := range uint64(runs) {
		noise := rand.New(rand.NewPCG(seed, 2))
		s := seriesOf(10*minute, func(float64) float64 { return 100 + 30*noise.NormFloat64() })
		if s.Judge(2*minute, minute, Bound{}).Verdict == Rises {
			wrong++
		}
	}
	require.Less(t, wrong, runs/20, "with nothing that does not matter, and few cycles")
}

func TestJudge_ARestlessSeriesIsNotVouchedFor(t *testing.T) {
	t.Parallel()
	verdicts := map[Verdict]int{}
	for seed := range uint64(100) {
		noise := rand.New(rand.NewPCG(seed, 3))
		level, last := 0.0, -1
		s := seriesOf(hour, func(t float64) float64 {
			if now := int(t / minute); now != last {
				level, last = 500+150*noise.NormFloat64(), now
			}
			return level
		})
		verdicts[s.Judge(hour/4, minute, Bound{Least: 15}).Verdict]++
	}
	require.Greater(t, verdicts[Unknown], 80, "%v: what falls by chance is flat, what rises by chance rises", verdicts)
}

func TestSVGIsXML(t *testing.T) {
	t.Parallel()
	rows := seriesOf(hour, func(t float64) float64 { return t })
	rows.Name, rows.Unit, rows.Log = "rows", "<rows>", true
	rows.Judge(hour/4, minute, Bound{})
	figure := Figure{
		Title: "a < b & c", Notes: []string{"<notes>"}, Series: []Series{rows, {Name: "none"}},
		Marks: []Mark{{60, 70, "kill & roll", false}, {90, 100, "<one more>", true}},
	}
	var b strings.Builder
	require.NoError(t, figure.SVG(&b))
	require.NotContains(t, b.String(), "NaN")
	elements := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok {
			elements[start.Name.Local]++
		}
	}
	require.Equal(t, 2, elements["polyline"], "a panel each")
	require.Equal(t, 4, elements["title"], "a mark in each panel")
	require.Equal(t, 45, elements["circle"], "a minute each, from the 15th on")
}
