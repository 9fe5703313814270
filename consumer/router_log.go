package consumer

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
)

// routerLogger tells what the router tells, a level lower: it announces every handler's start and end.
type routerLogger struct {
	watermill.LoggerAdapter
	log      *slog.Logger
	stopping *atomic.Bool
}

func newRouterLogger(log *slog.Logger, stopping *atomic.Bool) watermill.LoggerAdapter {
	levels := map[slog.Level]slog.Level{slog.LevelInfo: slog.LevelDebug}
	return routerLogger{watermill.NewSlogLoggerWithLevelMapping(log, levels), log, stopping}
}

// Trace is told of each message twice: what nobody reads is not put together.
func (l routerLogger) Trace(msg string, fields watermill.LogFields) {
	if l.log.Enabled(context.Background(), watermill.LevelTrace) {
		l.LoggerAdapter.Trace(msg, fields)
	}
}

// Error is none while the consumer stops: the router takes it for one that its handlers have all ended, which is what a
// source does to them that drains.
func (l routerLogger) Error(msg string, err error, fields watermill.LogFields) {
	if l.stopping.Load() {
		l.Debug(msg, fields)
		return
	}
	l.LoggerAdapter.Error(msg, err, fields)
}

// With keeps the wrapper.
func (l routerLogger) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return routerLogger{l.LoggerAdapter.With(fields), l.log, l.stopping}
}
