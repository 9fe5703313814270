package consumer

import (
	"context"
	"log/slog"
	"maps"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/headrace/headrace/internal/redact"
)

// routerLogger tells what the router tells, a level lower: it announces every handler's start and end.
type routerLogger struct {
	watermill.LoggerAdapter
	log      *slog.Logger
	stopping *atomic.Bool
	redact   func(error) string
}

func newRouterLogger(log *slog.Logger, stopping *atomic.Bool, by func(error) string) watermill.LoggerAdapter {
	levels := map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug}
	return routerLogger{watermill.NewSlogLoggerWithLevelMapping(log, levels), log, stopping, by}
}

// Trace is told of each message twice: what nobody reads is not put together.
func (l routerLogger) Trace(msg string, fields watermill.LogFields) {
	if l.log.Enabled(context.Background(), watermill.LevelTrace) {
		l.LoggerAdapter.Trace(msg, nameless(fields))
	}
}

// Debug is told of a message now and then.
func (l routerLogger) Debug(msg string, fields watermill.LogFields) {
	l.LoggerAdapter.Debug(msg, nameless(fields))
}

// nameless leaves out the message's id, which is the producer's and may be anything.
func nameless(fields watermill.LogFields) watermill.LogFields {
	const id = "message_uuid"
	if _, there := fields[id]; !there {
		return fields
	}
	fields = maps.Clone(fields)
	delete(fields, id)
	return fields
}

// Error is none while the consumer stops: the router takes it for one that its handlers have all ended, which is what a
// source does to them that drains.
func (l routerLogger) Error(msg string, err error, fields watermill.LogFields) {
	if l.stopping.Load() {
		l.Debug(msg, fields)
		return
	}
	l.LoggerAdapter.Error(msg, redact.Of(err, l.redact), nameless(fields))
}

// With keeps the wrapper.
func (l routerLogger) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return routerLogger{l.LoggerAdapter.With(nameless(fields)), l.log, l.stopping, l.redact}
}
