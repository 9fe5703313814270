// Package fault says what an error means: whether the same record may succeed if it is tried again, whether the record
// or something it depends on is at fault, and what happens to it then. [Classifier.Classify] is the only place that
// knows.
//
// # What a handler says
//
// Most handlers say nothing: they return the error that they got, wrapped as they like, and the built-in rules know
// Postgres's SQLSTATEs, net and net/http, HTTP answers ([StatusError]), Kafka's codes, contexts and panics. A handler
// that knows better says so with a verb:
//
//	return fault.Permanent(err)                        // it will fail again: dead letter
//	return fault.Transient(err)                        // nothing was done: try again
//	return fault.RetryAfter(err, 3*time.Second)        // the same, but not before
//	return fault.Ambiguous(err)                        // it may have been done: repeat only if that is safe
//	return fault.Busy(err)                             // somebody else is doing it: soon again, free of charge
//	return fault.Unavailable(err, "payments")          // they are down: hold until they are back, free of charge
//	return fault.Skip("a test order")                  // no failure: this record has no effect
//	return fault.Park(err, time.Hour)                  // wait aside, in Postgres
//
// nil in gives nil out. The outermost verb counts, through any wrap; in an errors.Join each branch is judged for itself
// and the gravest failure decides.
//
// # What becomes of it
//
//	class        meaning                        tried again              charged  then
//	transient    surely not executed, undone    yes                      yes      dead or parked
//	ambiguous    outcome unknown                where repeating is safe  yes      dead: unknown_outcome
//	busy         another delivery owns it       soon                     no       held
//	unavailable  a dependency is down           when it is back          no       held
//	permanent    it will fail again; unknown    no                       yes      dead
//	cancelled    the delivery ended             –                        no       given back
//
// # What you can add
//
// A [Rule] for the errors of your own clients goes in front of the built-in ones, in [Classifier.Rules]. Rules look at
// types and codes, never at texts: servers speak many languages.
package fault
