package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// report is what the demo found. Everything but parked_meanwhile, rebalances, holds, breaker_opened, seconds and rate is counted from
// Postgres, the topics and the payment service.
type report struct {
	Records      int            `json:"records"`
	Effected     int            `json:"effected"`
	Duplicate    int            `json:"duplicate"`
	Skipped      int            `json:"skipped"`
	Dead         int            `json:"dead"`
	Parked       int            `json:"parked"`
	Balanced     bool           `json:"balanced"`
	DeadByReason map[string]int `json:"dead_by_reason"`
	// ParkedMeanwhile were parked at some time, and have another outcome now or are Parked still.
	ParkedMeanwhile int `json:"parked_meanwhile"`
	// OrderKept says that the postings of each account are in the order of its orders, of those that were parked too.
	OrderKept bool `json:"order_kept"`
	// DeadLetters counts the records of the dead letter topic: a crash may leave a second copy of one.
	DeadLetters int `json:"dead_letters"`
	// Replayed are those of the effected that were dead, and had their effect when their dead letter was replayed.
	Replayed int `json:"replayed"`
	// NewIDs are those of the effected that contradicted an earlier record of their id, and were replayed with a new one.
	NewIDs int `json:"new_ids"`
	// Charges are the payment service's, ChargedInVain the orders among them that died after theirs, DoubleCharges those that
	// have more than anybody asked for, ChargedAnew those that have more than one because of a replay with a new id.
	Charges       int `json:"charges"`
	ChargedInVain int `json:"charged_in_vain"`
	DoubleCharges int `json:"double_charges"`
	ChargedAnew   int `json:"charged_anew"`
	// Events are the order-charged events by id, Notices what the second consumer made of them: one each.
	Events  int `json:"events"`
	Notices int `json:"notices"`
	// Degraded are the notices whose language the directory was not there to tell, by where it came from.
	Degraded map[string]int `json:"degraded"`
	// Problems says what does not hold, at most a few of a kind.
	Problems   []string `json:"problems"`
	Rebalances int      `json:"rebalances"`
	Holds      int      `json:"holds"`
	// BreakerOpened is how often the payment service's did; a probe that failed is not counted.
	BreakerOpened int     `json:"breaker_opened"`
	Seconds       float64 `json:"seconds"`
	Rate          float64 `json:"rate"`
	Seed          uint64  `json:"seed"`
	Transport     string  `json:"transport"`
	Store         string  `json:"store"`
	Topic         string  `json:"topic"`
	Group         string  `json:"group"`
	*Stay

	exhibit *place // of some dead record, nil if there is none
}

// Stay is where everything is that stays up.
type Stay struct {
	Brokers         []string `json:"brokers"`
	DSN             string   `json:"dsn"`
	DeadLetterTopic string   `json:"dead_letter_topic"`
	Metrics         string   `json:"metrics"`
	Payments        string   `json:"payments"`
}

// took fills what only the run itself knows.
func (r *report) took(d time.Duration, s snapshot) {
	r.Seconds = round(d.Seconds())
	if d > 0 {
		r.Rate = round(float64(r.Records) / d.Seconds())
	}
	r.ParkedMeanwhile = s.parked
	r.Rebalances, r.Holds, r.BreakerOpened = s.moves, s.held, s.trips
}

func round(f float64) float64 { return float64(int64(f*10+0.5)) / 10 }

func (r *report) problem(format string, args ...any) {
	r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
}

func (r *report) print(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	return r.text(out)
}

func (r *report) text(out io.Writer) error {
	_, err := fmt.Fprintf(out, `
ledger of %s for %s, counted from Postgres, the topics and the payment service
  %8d effected  %s
+ %8d duplicate %s
+ %8d skipped
+ %8d dead      %s
+ %8d parked    %s
= %8d of %d records
%d charges%s, %d orders charged twice%s
%d order-charged events through the outbox, %d notices by a second consumer group%s
%s%s
`, r.Topic, r.Group, r.Effected, r.risen(), r.Duplicate, r.unknown(), r.Skipped, r.Dead, r.reasons(), r.Parked, r.waited(), r.sum(), r.Records,
		r.Charges, r.inVain(), r.DoubleCharges, r.askedFor(), r.Events, r.Notices, r.substitutes(), r.run(), r.verdict())
	return err
}

// run is what happened while it ran, nothing if it only counted.
func (r *report) run() string {
	if r.Seconds == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f s, %.0f records/s, %d rebalances, %d holds, breaker opened %d times\n",
		r.Seconds, r.Rate, r.Rebalances, r.Holds, r.BreakerOpened)
}

// inVain are charges of orders that died after them: a replay posts such an order with the charge that it has.
func (r *report) inVain() string {
	if r.ChargedInVain == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them of orders that died after it", r.ChargedInVain)
}

// askedFor are the second charges that an operator wanted.
func (r *report) askedFor() string {
	if r.ChargedAnew == 0 {
		return ""
	}
	return fmt.Sprintf("; %d charged once more because --new-id asked for it", r.ChargedAnew)
}

// waited are those that were parked in between.
func (r *report) waited() string {
	switch {
	case r.Store == offsetStore:
		return "the offset store cannot park: no bank was away"
	case r.ParkedMeanwhile == 0:
		return ""
	}
	order := "in their order"
	if !r.OrderKept {
		order = "NOT in their order"
	}
	return fmt.Sprintf("%d were in between: an order of a bank that is away, and those of its account behind it, %s", r.ParkedMeanwhile, order)
}

// substitutes are the reads that were answered by another than the directory.
func (r *report) substitutes() string {
	if len(r.Degraded) == 0 {
		return ""
	}
	return fmt.Sprintf(", in a substitute language while the directory was away: %s", strings.TrimSpace(counts(r.Degraded)))
}

// unknown says why there are no duplicates where nobody would know them.
func (r *report) unknown() string {
	if r.Store != offsetStore {
		return ""
	}
	return " the offset store knows none: each would have its effect, so none were produced"
}

func (r *report) risen() string {
	var parts []string
	if r.Replayed > 0 {
		parts = append(parts, fmt.Sprintf("%d of them replayed", r.Replayed))
	}
	if r.NewIDs > 0 {
		parts = append(parts, fmt.Sprintf("%d under a new id", r.NewIDs))
	}
	return strings.Join(parts, ", ")
}

func (r *report) sum() int { return r.Effected + r.Duplicate + r.Skipped + r.Dead + r.Parked }

func (r *report) reasons() string { return counts(r.DeadByReason) }

func counts(of map[string]int) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(of)) {
		text += fmt.Sprintf("%s %d  ", name, of[name])
	}
	return text
}

func (r *report) verdict() string {
	if r.Balanced && r.NewIDs > 0 {
		return fmt.Sprintf("balanced: every effected order was charged and posted exactly once, and once more for each of the %d that --new-id let run "+
			"beside it; only faulty ones are dead", r.NewIDs)
	}
	if r.Balanced {
		return "balanced: every effected order was charged and posted exactly once, and only faulty ones are dead"
	}
	text := "NOT BALANCED"
	for _, p := range r.Problems {
		text += "\n  " + p
	}
	return text
}
