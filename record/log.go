package record

import (
	"context"
	"log/slog"

	"github.com/headrace/headrace/internal/redact"
)

// LogReports gives an OnReport that writes each report as one line, at level warn. It is what everything does that is
// given no hooks. What looks like a secret in an error's text is replaced.
func LogReports(log *slog.Logger) func(Report) {
	return func(r Report) { log.LogAttrs(context.Background(), slog.LevelWarn, r.Kind, r.attrs()...) }
}

// attrs leaves out what a report has nothing to say about.
func (r Report) attrs() []slog.Attr {
	var attrs []slog.Attr
	add := func(is bool, a slog.Attr) {
		if is {
			attrs = append(attrs, a)
		}
	}
	add(r.Route != "", slog.String("route", r.Route))
	add(r.Topic != "", slog.String("topic", r.Topic))
	add(r.Topic != "" && r.Partition >= 0, slog.Int("partition", int(r.Partition)))
	add(r.Topic != "" && r.Offset >= 0, slog.Int64("offset", r.Offset))
	add(r.Age != 0, slog.Duration("age", r.Age))
	if r.Lost.Count > 0 {
		add(true, slog.Int64("lost_first", r.Lost.First))
		add(true, slog.Int64("lost_last", r.Lost.Last))
		add(true, slog.Int64("lost", r.Lost.Count))
	}
	if r.Err != nil {
		add(true, slog.String("error", redact.Error(r.Err)))
	}
	add(r.Hint != "", slog.String("hint", r.Hint))
	return attrs
}
