package main

import (
	"time"
)

// figure is something that an outage did, and the most that it may.
type figure struct {
	Name  string  `json:"-"`
	Value float64 `json:"value"`
	Most  float64 `json:"most"`
	OK    bool    `json:"ok"`
}

// amplified is the most that an outage may multiply calls.
const amplified = 1.2

// inboxConns are the inbox's own connections: two for each of the default of four writers, and four.
const inboxConns = 2*4 + 4

// figures are a phase's. The breaker opens when half of what its window has has failed: so as many calls may fail as it had
// answers, those that failed before repeats counted, and those under way. A probe may hang for a call's time, and the next
// one is let through OpenFor later.
func (p *phase) figures() []figure {
	s, w, d := p.settings, p.watch, p.dependency.Config()
	window := float64(s.rate) * s.slow(d.Breaker.Window).Seconds()
	probe := s.slow(callTimeout + d.Breaker.OpenFor + time.Second)
	return []figure{
		atMost("entry_errors", float64(w.entry), window+2*places),
		atMost("worst_hold_seconds", w.hold.Seconds(), (s.cut + probe).Seconds()),
		atMost("first_success_seconds", w.recovery().Seconds(), probe.Seconds()),
		atMost("amplification", p.amplification(), amplified),
		atMost("calls_in_flight", float64(p.meter.peak.Load()), places),
		atMost("connections", float64(p.activity.conns), poolConns+inboxConns),
		atMost("open_transactions", float64(p.activity.open), 0),
		atMost("release_seconds", p.released.worst.Seconds(), s.slow(time.Second).Seconds()),
		atMost("double_charges", float64(p.ledger.Doubles), 0),
		atMost("outage_letters", float64(p.ledger.OutageLetters), 0),
		atMost("astray", float64(p.ledger.Astray), 0),
	}
}

// amplification is how many calls an order took, those apart by which the breaker noticed the outage: they have a bound of
// their own.
func (p *phase) amplification() float64 {
	return float64(int(p.meter.sent.Load())-p.watch.entry) / float64(max(p.produced, 1))
}

func atMost(name string, value, most float64) figure {
	return figure{Name: name, Value: value, Most: most, OK: value <= most}
}
