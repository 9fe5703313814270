package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// ProblemError is why a Transport does not read what it should. Ready joins one for each problem that stands, in order of
// topics and partitions.
type ProblemError struct {
	// Kind is that of the problem's report.
	Kind string
	// Topic and Partition are what is not read: "" and -1 for all of it, and -1 alone for the topic.
	Topic     string
	Partition int32
	// Since is from when on.
	Since time.Time
	// Err is what was found.
	Err error
	// Help is what to do about it, as in the report.
	Help string
}

func (e *ProblemError) Error() string {
	if place := e.Place(); place != "" {
		return fmt.Sprintf("%s: %s: %v", place, e.Kind, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Kind, e.Err)
}

// Place is the partition as orders/3, the topic, or "".
func (e *ProblemError) Place() string {
	if e.Topic == "" || e.Partition < 0 {
		return e.Topic
	}
	return fmt.Sprintf("%s/%d", e.Topic, e.Partition)
}

// Hint gives Help.
func (e *ProblemError) Hint() string { return e.Help }

// Unwrap gives Err.
func (e *ProblemError) Unwrap() error { return e.Err }

// JoinProblems joins them in order; nil for none. It is for Transports.
func JoinProblems(all []*ProblemError) error {
	slices.SortFunc(all, func(a, b *ProblemError) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	errs := make([]error, len(all))
	for i, e := range all {
		errs[i] = e
	}
	return errors.Join(errs...)
}
