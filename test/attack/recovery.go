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

// strike is when one of them began.
type strike struct {
	fault string
	at    time.Time
}

// recovery is how long it took until there were effects again, in seconds.
type recovery struct {
	Times int `json:"times"`
	// First is until the first further effect of anybody, Partitions until the last of all partitions had one. Both are
	// medians; Worst is the longest of the latter.
	First      float64 `json:"first"`
	Partitions float64 `json:"partitions"`
	Worst      float64 `json:"worst"`
}

// A partition in which nothing is done any more waits for nothing: nobody may have written to it.
const recoverySQL = `select coalesce(extract(epoch from min(at) - $1), -1)::float8, coalesce(extract(epoch from max(at) - $1), -1)::float8
	from (select min(at) at from effects where at > $1 and at < $2 group by topic, part) e`

// recoveries looks at the effects up to end, which is when the load ended.
func recoveries(ctx context.Context, s *lab.Site, strikes []strike, end time.Time) (map[string]recovery, error) {
	first, all := map[string][]float64{}, map[string][]float64{}
	for _, k := range strikes {
		var one, every float64
		if err := ask(ctx, s, recoverySQL, []any{k.at, end}, &one, &every); err != nil {
			return nil, err
		}
		if one >= 0 {
			first[k.fault], all[k.fault] = append(first[k.fault], one), append(all[k.fault], every)
		}
	}
	found := map[string]recovery{}
	for fault := range first {
		found[fault] = recovery{len(first[fault]), median(first[fault]), median(all[fault]), tenths(slices.Max(all[fault]))}
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
