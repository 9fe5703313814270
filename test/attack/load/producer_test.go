package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDue(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	for name, c := range map[string]struct {
		rate   int
		steady bool
		ticks  []time.Duration // in ms after begin
		want   int
	}{
		"WhatIsLeftOfATickIsDueAtTheNext":  {17, true, []time.Duration{100, 200, 300, 400, 500, 600, 700, 800, 900, 1000}, 17},
		"ASlowWriteIsMadeUpFor":            {60, true, []time.Duration{100, 950, 1000}, 60},
		"UnlessItIsToBeLess":               {60, false, []time.Duration{100, 950, 1050}, 18},
		"AnOutageIsNot":                    {60, true, []time.Duration{100, 10_100}, 6 + 60},
		"LessThanOneATickIsNoneAtSomeTick": {2, true, []time.Duration{100, 200, 300, 400, 500, 600}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, n := producer{rate: c.rate, steady: c.steady, upTo: begin}, 0
			for _, tick := range c.ticks {
				n += p.due(begin.Add(tick * time.Millisecond))
			}
			require.Equal(t, c.want, n)
		})
	}
}
