package main

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/headrace/headrace/test/attack/lab"
)

// killings are the faults that begin with a SIGKILL. What follows is the fault's own: a member is started again after half a
// second, a broker after up to eight, Postgres after up to five.
var killings = []string{"consumer-kill", "broker-kill-leader", "postgres-kill"}

// killedEnd is how the end of a process that was killed is counted.
const killedEnd = "signal: killed"

// strike is one of them: when it began, and when what was killed had been started again.
type strike struct {
	fault    string
	at, back time.Time
}

// recovery is how long it took until there were effects again, in seconds.
type recovery struct {
	Times int `json:"times"`
	// Away is until a broker or Postgres had been started again. First is until the first further effect of anybody, Partitions
	// until the last of all partitions had one. All are medians; Worst is the longest of the latter.
	Away       float64 `json:"away,omitempty"`
	First      float64 `json:"first"`
	Partitions float64 `json:"partitions"`
	Worst      float64 `json:"worst"`
}

// A partition in which nothing is done any more waits for nothing: nobody may have written to it.
const recoverySQL = `select coalesce(extract(epoch from min(at) - $1), -1)::float8, coalesce(extract(epoch from max(at) - $1), -1)::float8
	from (select min(at) at from effects where at > $1 and at < $2 group by topic, part) e`

// recoveries looks at the effects up to end, which is when the load ended. A strike so shortly before that the next one would
// not have been due says nothing: partitions that are not back by the end would not count.
func recoveries(ctx context.Context, s *lab.Site, strikes []strike, end time.Time, apart time.Duration) (map[string]recovery, error) {
	away, first, all := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	for _, k := range strikes {
		if end.Sub(k.at) < apart {
			continue
		}
		var one, every float64
		if err := ask(ctx, s, recoverySQL, []any{k.at, end}, &one, &every); err != nil {
			return nil, err
		}
		if one >= 0 {
			away[k.fault] = append(away[k.fault], k.back.Sub(k.at).Seconds())
			first[k.fault], all[k.fault] = append(first[k.fault], one), append(all[k.fault], every)
		}
	}
	found := map[string]recovery{}
	for fault := range first {
		r := recovery{Times: len(first[fault]), First: median(first[fault]), Partitions: median(all[fault]), Worst: tenths(slices.Max(all[fault]))}
		if fault != "consumer-kill" { // a member is started again at once, and the fault lasts on
			r.Away = median(away[fault])
		}
		found[fault] = r
	}
	return found, nil
}

func median(of []float64) float64 {
	slices.Sort(of)
	return tenths(of[len(of)/2])
}

func tenths(seconds float64) float64 { return math.Round(seconds*10) / 10 }

// longestStall is how many seconds there was no effect, up to end.
func longestStall(ctx context.Context, s *lab.Site, end time.Time) (float64, error) {
	var seconds float64
	err := ask(ctx, s, `select coalesce(extract(epoch from max(gap)), 0)::float8 from
		(select at - lag(at) over (order by at) gap from effects where at < $1) e`, []any{end}, &seconds)
	return tenths(seconds), err
}
