package middleware

import (
	"errors"
	"log/slog"

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

// debug writes a line about r's failure, if the log takes it: to redact its error costs more than the line.
func (c *chain) debug(text string, r *record.Record, more ...any) {
	if !c.rt.Logger.Enabled(c.ctx(), slog.LevelDebug) {
		return
	}
	c.rt.Logger.Debug(text, append([]any{
		"route", c.rt.Name, "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "attempts", r.Attempts,
		"class", c.fault.Class, "rule", c.fault.Rule, "error", c.rt.shown(r, r.Err),
	}, more...)...)
}

// redactor gives the text of err. What a dead row says has been through it, and must not change.
func (rt *Route) redactor(err error) func(error) string {
	if dead := (*dedup.DeadError)(nil); errors.As(err, &dead) && dead.Text != "" {
		return nil
	}
	return rt.RedactError
}
