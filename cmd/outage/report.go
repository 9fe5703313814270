package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// report is what is printed.
type report struct {
	OK    bool     `json:"ok"`
	Seed  uint64   `json:"seed"`
	Cut   float64  `json:"cut_seconds"`
	Rate  int      `json:"rate"`
	Kinds []outage `json:"kinds"`
}

// outage is one kind's part.
type outage struct {
	Kind string `json:"kind"`
	OK   bool   `json:"ok"`
	// OpenedAfter is when the breaker opened, in seconds, and Trips how often.
	OpenedAfter float64           `json:"opened_after_seconds"`
	Trips       int               `json:"trips"`
	Cancelled   int               `json:"cancelled_calls"`
	Figures     map[string]figure `json:"figures"`
	Ledger      ledger            `json:"ledger"`

	figures []figure
}

func newReport(s settings, phases []*phase) *report {
	r := &report{OK: true, Seed: s.seed, Cut: s.cut.Seconds(), Rate: s.rate}
	for _, p := range phases {
		o := outage{
			Kind: p.kind.name, OK: true, OpenedAfter: p.watch.opens.Seconds(), Trips: p.watch.trips, Cancelled: p.released.calls,
			Ledger: p.ledger, Figures: map[string]figure{}, figures: p.figures(),
		}
		for _, f := range o.figures {
			o.Figures[f.Name] = f
			o.OK = o.OK && f.OK
		}
		r.OK = r.OK && o.OK
		r.Kinds = append(r.Kinds, o)
	}
	return r
}

func (r *report) write(out io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(r)
	}
	return r.table(out)
}

// table has a line a figure, and a column a kind. What is past its bound has a mark.
func (r *report) table(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }
	row := func(name, bound string, cell func(outage) string) {
		cells := []string{name, bound}
		for _, o := range r.Kinds {
			cells = append(cells, cell(o))
		}
		line(cells...)
	}
	row("", "at most", func(o outage) string { return o.Kind })
	row("breaker opened after", "", func(o outage) string { return number(o.OpenedAfter) + " s" })
	row("breaker opened times", "", func(o outage) string { return strconv.Itoa(o.Trips) })
	for i, f := range r.Kinds[0].figures {
		row(strings.ReplaceAll(f.Name, "_", " "), number(f.Most), func(o outage) string { return o.figures[i].String() })
	}
	row("orders", "", func(o outage) string { return strconv.Itoa(o.Ledger.Records) })
	for _, outcome := range []struct {
		name string
		of   func(ledger) int
	}{
		{"= effected", func(l ledger) int { return l.Effected }},
		{"+ dead", func(l ledger) int { return l.Dead }},
		{"+ duplicate, skipped, parked", func(l ledger) int { return l.Duplicate + l.Skipped + l.Parked }},
		{"charges", func(l ledger) int { return l.Charges }},
	} {
		row(outcome.name, "", func(o outage) string { return strconv.Itoa(outcome.of(o.Ledger)) })
	}
	if err := t.Flush(); err != nil {
		return err
	}
	verdict := "ok: every bound holds"
	if !r.OK {
		verdict = "NOT OK: what is marked with ! is past its bound"
	}
	_, err := fmt.Fprintln(out, verdict)
	return err
}

// String marks what is past its bound.
func (f figure) String() string {
	if f.OK {
		return number(f.Value)
	}
	return "! " + number(f.Value)
}

// number has two decimals where it is no whole one.
func number(f float64) string {
	if f == math.Trunc(f) {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'f', 2, 64)
}
