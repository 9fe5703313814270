package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// serve offers the member's health and metrics. The returned function ends it.
func (d *demo) serve(m *member, out io.Writer) (stop func(), err error) {
	listener, err := net.Listen("tcp", d.settings.listen)
	if err != nil {
		return nil, fmt.Errorf("-listen: %w", err)
	}
	server := &http.Server{Handler: m.consumer.Handler(), ReadHeaderTimeout: 5 * time.Second}
	d.metrics = listener.Addr().String()
	fmt.Fprintf(out, "metrics and health: http://%s/metrics /livez /readyz\n", d.metrics)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	return func() {
		_ = server.Close() // scrapes in progress are nobody's loss
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			d.log.Warn("metrics server", "error", err)
		}
	}, nil
}

// invite keeps everything up until the process is interrupted, and says where it is.
func (d *demo) invite(ctx context.Context) {
	d.progress.note("everything stays up until you interrupt it (Ctrl-C)")
	d.progress.note("brokers   %v, topic %s, group %s", d.world.client.Brokers, d.settings.topic, d.settings.group)
	d.progress.note("database  psql '%s'", d.world.dsn)
	d.progress.note("metrics   http://%s/metrics", d.metrics)
	<-ctx.Done()
}
