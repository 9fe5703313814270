package fault

import (
	"context"
	"errors"
)

// Classifier knows what errors mean. The zero value and nil have the built-in rules only. It is safe for concurrent
// use once its fields are set.
type Classifier struct {
	// Rules are asked in order, before the built-in ones; the first that knows the error decides.
	Rules []Rule
}

// Classify says what err, the end of an attempt of an Apply that ran under ctx, means. In this order:
//
//  1. ctx was cancelled: ClassCancelled, whatever err is. Whether the delivery ended is judged by ctx and not by err: a
//     handler may fail with the context.Canceled of a child that it cancelled itself. A deadline of ctx is the
//     attempt's own and no end of the delivery, unless its cause is a context.Canceled.
//  2. The outermost verb in err.
//  3. c.Rules.
//  4. The built-in rules, for types and codes; a text never counts.
//  5. The deadline of ctx, if it has passed.
//  6. ClassPermanent, the rule "unknown".
//
// The branches of an errors.Join (and of an fmt.Errorf with several %w) are judged one by one, and the gravest of those
// that anything is known about decides: ambiguous, unavailable, permanent, busy, transient. A verb speaks for what it
// wraps, not for the branch beside it; wrap the Join to speak for all of it.
//
// A deadline is Transient here: nothing commits before the COMMIT that comes after Apply. Ask [Classifier.ClassifyCall]
// about a Call.
//
// If the delivery's context is another than the attempt's, ask the delivery's first: an attempt's context whose
// deadline has passed does not notice that the delivery ended after it. A SkipError is no failure: ask [AsSkip] before.
// Classify never panics, and a nil err, a programmer's error, is ClassPermanent.
func (c *Classifier) Classify(ctx context.Context, err error) Fault {
	return c.classify(ctx, err, false)
}

// ClassifyCall is Classify for a call out, which no transaction undoes: there a deadline that ended it half way leaves
// the outcome unknown, ClassAmbiguous.
func (c *Classifier) ClassifyCall(ctx context.Context, err error) Fault {
	return c.classify(ctx, err, true)
}

// classify survives what it is given: a user's rule may panic, and an error's methods. What could not be read is as good
// as unknown.
func (c *Classifier) classify(ctx context.Context, err error, call bool) (f Fault) {
	defer func() {
		if recover() != nil {
			f = Fault{Class: ClassPermanent, Rule: "unreadable"}
		}
	}()
	if err == nil {
		return Fault{Class: ClassPermanent, Rule: "nil error"}
	}
	if ended(ctx) {
		return Fault{Class: ClassCancelled, Rule: "delivery ended"}
	}
	return c.judge(ctx, err, call)
}

func (c *Classifier) judge(ctx context.Context, err error, call bool) Fault {
	s := search{call: call}
	if c != nil {
		s.rules = c.Rules
	}
	found := s.find(err)
	switch {
	case found.level >= known:
		return found.fault.normal()
	case found.level == skipped:
		return Fault{Class: ClassPermanent, Rule: "verb skip"}
	case ctx.Err() != nil:
		return cutShort(call, "attempt deadline")
	}
	return Fault{Class: ClassPermanent, Rule: "unknown"}
}

// ended tells a delivery that is over from an attempt that took too long. A delivery may be ended by a timer too (the
// end of a grace): then its cause says so.
func ended(ctx context.Context) bool {
	return errors.Is(ctx.Err(), context.Canceled) || errors.Is(context.Cause(ctx), context.Canceled)
}

// cutShort is the fault of something that was stopped while it ran.
func cutShort(call bool, rule string) Fault {
	if call {
		return Fault{Class: ClassAmbiguous, Rule: rule}
	}
	return Fault{Class: ClassTransient, Rule: rule}
}

// level is who knows an error's meaning.
type level uint8

const (
	nothing level = iota
	skipped       // a Skip: it hides no error, so whatever stands beside it decides
	unknown
	known // by a built-in rule
	ruled // by a user's rule
	said  // by a verb
)

type finding struct {
	fault Fault
	level level
}

// search is one look through an error.
type search struct {
	rules []Rule
	call  bool
}

// find judges err. What is beneath is looked at before the rules are, because http.Client wraps what a RoundTripper
// said in a url.Error; and the built-in rules see the errors above a Join alone (pgx's ConnectError wraps the errors of
// all addresses that it tried), its branches having been judged each for itself.
func (s search) find(err error) finding {
	head, branches := chain(err)
	if f, ok := verbIn(head); ok {
		return f
	}
	below := s.gravest(branches)
	if below.level >= ruled {
		return below
	}
	for _, rule := range s.rules {
		if f, ok := rule(err); ok {
			return finding{f, ruled}
		}
	}
	if f, ok := builtIn(head, s.call); ok {
		return finding{f, known}
	}
	if below.level == nothing {
		return finding{level: unknown}
	}
	return below
}

func (s search) gravest(branches []error) finding {
	var worst finding
	for _, err := range branches {
		if err != nil {
			worst = graver(worst, s.find(err))
		}
	}
	return worst
}

// graver is the failure of two that decides. Every floor counts: the next attempt repeats both.
func graver(a, b finding) finding {
	if a.level < known || b.level < known {
		if a.level >= b.level {
			return a
		}
		return b
	}
	worst := a
	if b.fault.Class.gravity() > a.fault.Class.gravity() {
		worst = b
	}
	worst.level = max(a.level, b.level)
	worst.fault.RetryAfter = max(a.fault.RetryAfter, b.fault.RetryAfter)
	return worst
}

// builtIns in their order: what is typed by its maker before what only the network saw.
var builtIns = [...]func(head []error, call bool) (Fault, bool){refused, status, postgres, kafka, network}

func builtIn(head []error, call bool) (Fault, bool) {
	for _, rule := range builtIns {
		if f, ok := rule(head, call); ok {
			return f, true
		}
	}
	return Fault{}, false
}
