// Package fault says what an error means: whether the same record may succeed if it is tried again, whether the record
// or something it depends on is at fault, and what happens to it then. [Classifier.Classify] is the only place that
// knows; handlers say more with the verbs [Permanent], [Transient], [Ambiguous], [RetryAfter], [Unavailable], [Skip]
// and [Park].
package fault
