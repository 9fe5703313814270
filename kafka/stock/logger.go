package stock

import (
	"context"
	"errors"
	"log/slog"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"

	"github.com/headrace/headrace/record"
)

// logger is where watermill-kafka's log ends. Its errors are the only word that it gives of what goes wrong: they become
// reports, each once. The rest is of use to a developer.
type logger struct {
	m      *member
	fields watermill.LogFields
}

var _ watermill.LoggerAdapter = (*logger)(nil)

// Error implements watermill.LoggerAdapter.
func (l *logger) Error(msg string, err error, fields watermill.LogFields) {
	l.log(msg, fields.Add(watermill.LogFields{"err": err}))
	if err == nil || errors.Is(err, sarama.ErrClosedClient) || errors.Is(err, sarama.ErrClosedConsumerGroup) {
		return // it is closing, or has closed it itself
	}
	var of *sarama.ConsumerError
	switch {
	case !errors.As(err, &of) || of.Partition < 0:
		l.m.s.trouble(place{l.m.topic, -1}, problem{kind: record.ReportGroupError, err: err})
	default:
		l.m.s.trouble(place{of.Topic, of.Partition}, problemOf(of.Err))
	}
}

// Info implements watermill.LoggerAdapter.
func (l *logger) Info(msg string, fields watermill.LogFields) { l.log(msg, fields) }

// Debug implements watermill.LoggerAdapter.
func (l *logger) Debug(msg string, fields watermill.LogFields) { l.log(msg, fields) }

// Trace implements watermill.LoggerAdapter. There is a line or more for each record.
func (l *logger) Trace(string, watermill.LogFields) {}

// With implements watermill.LoggerAdapter.
func (l *logger) With(fields watermill.LogFields) watermill.LoggerAdapter {
	return &logger{m: l.m, fields: l.fields.Add(fields)}
}

func (l *logger) log(msg string, fields watermill.LogFields) {
	ctx, log := context.Background(), l.m.s.cfg.Logger
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	var attrs []slog.Attr
	for name, value := range l.fields.Add(fields) {
		attrs = append(attrs, slog.Any(name, value))
	}
	log.LogAttrs(ctx, slog.LevelDebug, "watermill-kafka: "+msg, attrs...)
}
