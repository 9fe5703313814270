package consumer

import (
	"log/slog"
	"sync"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/record"
)

// joined calls every set of hooks in order.
func joined(sets ...record.Hooks) *record.Hooks {
	return &record.Hooks{
		OnSettle:            fan(sets, func(h record.Hooks) func(record.SettleInfo) { return h.OnSettle }),
		OnAttempt:           fan(sets, func(h record.Hooks) func(record.AttemptInfo) { return h.OnAttempt }),
		OnInbox:             fan(sets, func(h record.Hooks) func(record.InboxInfo) { return h.OnInbox }),
		OnGroup:             fan(sets, func(h record.Hooks) func(record.GroupInfo) { return h.OnGroup }),
		OnHold:              fan(sets, func(h record.Hooks) func(record.HoldInfo) { return h.OnHold }),
		OnDeadLetter:        fan(sets, func(h record.Hooks) func(record.DeadLetterInfo) { return h.OnDeadLetter }),
		OnClaim:             fan(sets, func(h record.Hooks) func(record.ClaimInfo) { return h.OnClaim }),
		OnCall:              fan(sets, func(h record.Hooks) func(record.CallInfo) { return h.OnCall }),
		OnBreaker:           fan(sets, func(h record.Hooks) func(record.BreakerInfo) { return h.OnBreaker }),
		OnRetry:             fan(sets, func(h record.Hooks) func(record.RetryInfo) { return h.OnRetry }),
		OnDegraded:          fan(sets, func(h record.Hooks) func(record.DegradedInfo) { return h.OnDegraded }),
		OnCallInTransaction: fan(sets, func(h record.Hooks) func(record.CallInfo) { return h.OnCallInTransaction }),
		OnForward:           fan(sets, func(h record.Hooks) func(record.ForwardInfo) { return h.OnForward }),
		OnOutbox:            fan(sets, func(h record.Hooks) func(record.OutboxInfo) { return h.OnOutbox }),
		OnParking:           fan(sets, func(h record.Hooks) func(record.ParkingInfo) { return h.OnParking }),
		OnReport:            fan(sets, func(h record.Hooks) func(record.Report) { return h.OnReport }),
	}
}

// fan makes one function of those that the sets have; nil if none has one, so that the engine need not build an info
// that nobody reads.
func fan[T any](sets []record.Hooks, pick func(record.Hooks) func(T)) func(T) {
	var fs []func(T)
	for _, set := range sets {
		if f := pick(set); f != nil {
			fs = append(fs, f)
		}
	}
	switch len(fs) {
	case 0:
		return nil
	case 1:
		return fs[0]
	}
	return func(info T) {
		for _, f := range fs {
			f(info)
		}
	}
}

// discreet gives reports, and what is told of breakers, errors whose texts may be shown. A dependency that is called outside
// of a route knows the built-in rules alone.
func discreet(h *record.Hooks, by func(error) string) *record.Hooks {
	report, breaker := h.OnReport, h.OnBreaker
	h.OnReport = func(r record.Report) {
		r.Err = redact.Of(r.Err, by)
		report(r)
	}
	h.OnBreaker = func(i record.BreakerInfo) {
		i.Err = redact.Of(i.Err, by)
		breaker(i)
	}
	return h
}

// guarded are the user's hooks, whose panics end here: they run on goroutines that serve many records, and in the
// client's callbacks. The first panic is logged; the rest would be a line a record.
func guarded(h record.Hooks, log *slog.Logger) record.Hooks {
	var once sync.Once
	caught := func(p *fault.PanicError) {
		once.Do(func() {
			log.Error("a hook panicked; no further one is logged", "error", redact.Of(p, nil), "stack", string(p.Stack))
		})
	}
	return record.Hooks{
		OnSettle:            guard(h.OnSettle, caught),
		OnAttempt:           guard(h.OnAttempt, caught),
		OnInbox:             guard(h.OnInbox, caught),
		OnGroup:             guard(h.OnGroup, caught),
		OnHold:              guard(h.OnHold, caught),
		OnDeadLetter:        guard(h.OnDeadLetter, caught),
		OnClaim:             guard(h.OnClaim, caught),
		OnCall:              guard(h.OnCall, caught),
		OnBreaker:           guard(h.OnBreaker, caught),
		OnRetry:             guard(h.OnRetry, caught),
		OnDegraded:          guard(h.OnDegraded, caught),
		OnCallInTransaction: guard(h.OnCallInTransaction, caught),
		OnForward:           guard(h.OnForward, caught),
		OnOutbox:            guard(h.OnOutbox, caught),
		OnParking:           guard(h.OnParking, caught),
		OnReport:            guard(h.OnReport, caught),
	}
}

func guard[T any](f func(T), caught func(*fault.PanicError)) func(T) {
	if f == nil {
		return nil
	}
	return func(info T) {
		defer func() {
			if p := recover(); p != nil {
				caught(fault.Recovered(p))
			}
		}()
		f(info)
	}
}
