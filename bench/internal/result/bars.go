package result

import (
	"fmt"
	"strings"
)

// Bar is one thing that the library wants to hold, and what this run says of it.
type Bar struct {
	Name string
	Want string
	Have string // "-" if what it takes did not run
	Met  string // yes, no, or - if what it takes did not run
}

// maxBatchTimeMS is Headrace's default, after which a group is cut.
const maxBatchTimeMS = 200

// Bars says what of the bars these results meet.
func Bars(results []Result) (bars []Bar) {
	b := table(results)
	for _, group := range [][]Bar{b.ofApply(), b.ofQueue(), b.ofBatch(), b.ofStores(), b.ofLatency(), b.ofCost(), b.ofTrouble(), b.ofOutbox(), b.ofParking(), b.ofInbox()} {
		bars = append(bars, group...)
	}
	return bars
}

// table answers questions about results.
type table []Result

// The partitions that throughput is measured at.
const one, eight = 1, 8

func (t table) ofApply() []Bar {
	apply := named("headrace-apply-inbox")
	return []Bar{
		t.rates("Apply to stock, 1 partition", 8, one, apply, named(Stock)),
		t.rates("Apply to stock, 8 partitions", 5, eight, apply, named(Stock)),
		t.rates("Apply to Spring's record listener (ack BATCH), 1 partition", 4, one, apply, named("spring-record-ack-batch")),
		t.rates("Apply to Spring's record listener (ack BATCH), 8 partitions", 4, eight, apply, named("spring-record-ack-batch")),
		t.rates("Apply to Parallel Consumer per record, 1 partition", 3, one, apply, named("parallel-record")),
		t.rates("Apply to Parallel Consumer per record, 8 partitions", 3, eight, apply, named("parallel-record")),
	}
}

// The experts and the limits are taken at the best of their settings.
func (t table) ofQueue() []Bar {
	queue := named("headrace-queue-inbox")
	return []Bar{
		t.rates("Queue to franz-go with pgx.Batch, 1 partition", 1.1, one, queue, family("franz-rows")),
		t.rates("Queue to franz-go with pgx.Batch, 8 partitions", 1.1, eight, queue, family("franz-rows")),
		t.rates("Queue to Spring with JDBC batches, 1 partition", 1.2, one, queue, named("spring-batch")),
		t.rates("Queue to Spring with JDBC batches, 8 partitions", 1.2, eight, queue, named("spring-batch")),
		t.rates("Queue to Postgres alone by rows, 1 partition", 0.8, one, queue, family("postgres-rows")),
		t.rates("Queue to Postgres alone by rows, 8 partitions", 0.8, eight, queue, family("postgres-rows")),
	}
}

func (t table) ofBatch() []Bar {
	batch := named("headrace-batch-inbox")
	sets := func(name string) bool { return family("franz-set")(name) || family("franz-cte")(name) }
	return []Bar{
		t.rates("Batch to franz-go with unnest, 1 partition", 1.15, one, batch, sets),
		t.rates("Batch to franz-go with unnest, 8 partitions", 1.15, eight, batch, sets),
		t.rates("Batch to Spring with unnest, 1 partition", 1.3, one, batch, named("spring-unnest")),
		t.rates("Batch to Spring with unnest, 8 partitions", 1.3, eight, batch, named("spring-unnest")),
		t.rates("Batch to Postgres alone by sets, 1 partition", 0.75, one, batch, family("postgres-set")),
		t.rates("Batch to Postgres alone by sets, 8 partitions", 0.85, eight, batch, family("postgres-set")),
	}
}

func (t table) ofStores() (bars []Bar) {
	for _, kind := range []string{"Queue", "Batch"} {
		name := "headrace-" + strings.ToLower(kind)
		for _, partitions := range []int32{one, eight} {
			what := fmt.Sprintf("Offset store to inbox, %s, %s", kind, at(partitions))
			bars = append(bars, t.rates(what, 1.3, partitions, named(name+"-offsets"), named(name+"-inbox")))
		}
	}
	return bars
}

func (t table) ofLatency() []Bar {
	ours := t.find("latency-low", eight, named("headrace-apply-inbox"))
	plain := t.find("latency-low", eight, named("franz-plain"))
	half := t.find("latency-50", eight, named("headrace-apply-inbox"))
	return []Bar{
		most("Low load p50 to a plain transaction", 1.1, ratio(ours.P50, plain.P50), "x"),
		most("p99.9 at half of the top rate, of MaxBatchTime", 3, ratio(half.P999, known(maxBatchTimeMS)), "x"),
	}
}

func (t table) ofCost() []Bar {
	var peak *float64
	for _, r := range t {
		if r.Scenario == "memory" && r.Verified && r.PeakRSS != nil && (peak == nil || *r.PeakRSS > *peak) {
			peak = r.PeakRSS
		}
	}
	bars := []Bar{most("Most memory over the backlog", 200, peak, " MB")}
	for _, partitions := range []int32{one, eight} {
		ours := t.find("throughput", partitions, named("headrace-apply-inbox"))
		stock := t.find("throughput", partitions, named(Stock))
		name := "Processor time a record to stock's, Apply, " + at(partitions)
		bars = append(bars, most(name, 0.4, ratio(ours.CPU, stock.CPU), "x"))
	}
	return bars
}

func (t table) ofTrouble() []Bar {
	const apply = "headrace-apply-inbox"
	rate := func(scenario string, partitions int32, name string) *float64 {
		return t.rate(scenario, partitions, named(name))
	}
	hot := rate("hot", eight, apply)
	bars := []Bar{
		most("What 1 % poison costs of the rate, Apply", 25, cost(rate("poison", eight, apply+"/with"), rate("poison", eight, apply+"/without")), " %"),
		least("Rate with 20 % duplicates, Apply", 0.95, ratio(rate("duplicates", eight, apply+"/with"), rate("duplicates", eight, apply+"/without")), "x"),
		least("Hot row to stock, Apply", 1, ratio(hot, rate("hot", eight, Stock)), "x"),
	}
	for _, partitions := range []int32{one, eight} {
		name := "Rate while a fifth of the keys fails for ever, Apply, " + at(partitions)
		bars = append(bars, least(name, 0.5, ratio(rate("failing", partitions, apply+"/with"), rate("failing", partitions, apply+"/without")), "x"))
	}
	for _, partitions := range []int32{one, eight} {
		name := "Calls of 5 ms, 256 in flight, to stock, " + at(partitions)
		calls := rate("calls", partitions, "headrace-call/in-flight-256")
		bars = append(bars, least(name, 10, ratio(calls, rate("calls", partitions, Stock)), "x"))
		name = "Calls of 5 ms, 256 in flight, to the route without, " + at(partitions)
		bars = append(bars, least(name, 0.6, ratio(calls, rate("calls", partitions, apply)), "x"))
	}
	return bars
}

func (t table) ofOutbox() []Bar {
	ours := t.rate("outbox", eight, named("headrace"))
	bars := []Bar{
		least("Outbox, events end to end at 3 ms acks", 20_000, ours, "/s"),
		least("Outbox to watermill-sql", 10, ratio(ours, t.rate("outbox", eight, named("watermill-sql"))), "x"),
	}
	for _, kind := range []string{"Apply", "Queue", "Batch"} {
		name := "headrace-" + strings.ToLower(kind) + "-inbox"
		with, without := t.rate("outbox-route", eight, named(name+"/outbox")), t.rate("outbox-route", eight, named(name))
		bars = append(bars, least("An event a record to none, "+kind, 0.75, ratio(with, without), "x"))
	}
	return bars
}

// ofInbox compares a full inbox with an empty one: at 10 million rows it is to be within a tenth.
func (t table) ofInbox() (bars []Bar) {
	for _, ids := range []string{"random-ids", "ordered-ids", "no-ids"} {
		empty := named("headrace-apply-inbox/" + ids)
		full := named("headrace-apply-inbox/" + ids + "/remembers")
		bars = append(bars,
			least("Rate over a full inbox, "+ids, 0.9, ratio(t.rate("inbox-size", eight, full), t.rate("inbox-size", eight, empty)), "x"),
			most("p99 over a full inbox at half of the rate, "+ids, 1.1, ratio(t.find("inbox-size-50", eight, full).P99, t.find("inbox-size-50", eight, empty).P99), "x"))
	}
	return bars
}

func (t table) ofParking() (bars []Bar) {
	for _, c := range [][2]string{{"headrace", "nothing else waits"}, {"headrace/others-wait", "others wait"}} {
		bars = append(bars,
			least("Into parking while "+c[1], 10_000, t.rate("parking-in", eight, named(c[0])), "/s"),
			least("Out of parking while "+c[1], 5_000, t.rate("parking-out", eight, named(c[0])), "/s"))
	}
	return bars
}

// rates compares the best of two in throughput.
func (t table) rates(name string, want float64, partitions int32, ours, theirs func(string) bool) Bar {
	return least(name, want, ratio(t.rate("throughput", partitions, ours), t.rate("throughput", partitions, theirs)), "x")
}

func (t table) find(scenario string, partitions int32, of func(string) bool) Result {
	r, _ := Best(t, scenario, partitions, of)
	return r
}

func (t table) rate(scenario string, partitions int32, of func(string) bool) *float64 {
	return known(t.find(scenario, partitions, of).Rate)
}

func at(partitions int32) string {
	if partitions == one {
		return "1 partition"
	}
	return fmt.Sprintf("%d partitions", partitions)
}

func named(name string) func(string) bool { return func(other string) bool { return other == name } }

// family is one contender at all its settings.
func family(name string) func(string) bool {
	return func(other string) bool { return strings.HasPrefix(other, name+"-") }
}

func ratio(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return known(*a / *b)
}

// cost is how much less a is than b, in percent.
func cost(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	percent := 100 * (1 - *a / *b)
	return &percent
}

func least(name string, want float64, have *float64, unit string) Bar {
	return judge(name, "≥ ", want, have, unit, func(have float64) bool { return have >= want })
}

func most(name string, want float64, have *float64, unit string) Bar {
	return judge(name, "≤ ", want, have, unit, func(have float64) bool { return have <= want })
}

func judge(name, sign string, want float64, have *float64, unit string, met func(float64) bool) Bar {
	b := Bar{Name: name, Want: fmt.Sprintf("%s%g%s", sign, want, unit), Have: "-", Met: "-"}
	if have == nil {
		return b
	}
	b.Have, b.Met = fmt.Sprintf("%.2f%s", *have, unit), "no"
	if met(*have) {
		b.Met = "yes"
	}
	return b
}
