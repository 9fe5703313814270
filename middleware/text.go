package middleware

import (
	"errors"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/record"
)

// text is what may be kept of an error that r failed with.
func (rt *Route) text(r *record.Record, err error) string {
	return dlq.MessageOf(r, diedOf(err), rt.redactor(err))
}

// shown is err for a report or the log: with no more in its text than what may be kept.
func (rt *Route) shown(r *record.Record, err error) error {
	if err == nil {
		return nil
	}
	return redact.As(err, rt.text(r, err))
}

// redactor gives the text of err. What a dead row says has been through it, and must not change.
func (rt *Route) redactor(err error) func(error) string {
	if dead := (*dedup.DeadError)(nil); errors.As(err, &dead) && dead.Text != "" {
		return nil
	}
	return rt.RedactError
}
