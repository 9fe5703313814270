package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/headrace/headrace/dlq"
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

// whereabouts is where everything is.
func (d *demo) whereabouts() *Stay {
	return &Stay{
		Brokers: d.world.client.Brokers, DSN: d.world.dsn, DeadLetterTopic: dlq.DefaultTopic(d.settings.topic),
		Metrics: "http://" + d.metrics + "/metrics", Payments: d.payments.URL() + "/charges",
	}
}

// invite says what can be done with all that stays up.
func (d *demo) invite() {
	w := d.whereabouts()
	d.progress.note("everything stays up until you interrupt it (Ctrl-C), and is counted once more then")
	d.progress.note("the customers have paid and the bugs are fixed, so most of what is dead can be replayed now:")
	run := func(command, rest string) {
		d.progress.say("    go run ./cmd/headrace dlq %s --brokers %s --topic %s%s", command, strings.Join(w.Brokers, ","), w.DeadLetterTopic, rest)
	}
	run("ls", fmt.Sprintf(" --dsn '%s'", w.DSN))
	if d.exhibit != nil {
		run("show", fmt.Sprintf(" --at %s/%s", d.settings.topic, d.exhibit))
	}
	run("replay", " --yes")
	d.progress.say("    # what contradicts an earlier order (id_conflict) stays dead: --new-id would charge and post it beside that one;")
	d.progress.say("    # and what could not be read (undecodable) dies again")
	d.progress.say("    go run ./cmd/headrace audit --brokers %s --topic %s --group %s --dsn '%s' --id-header %s",
		strings.Join(w.Brokers, ","), d.settings.topic, d.settings.group, w.DSN, idHeader)
	d.progress.say("    go run ./cmd/headrace parked ls --dsn '%s'", w.DSN)
	d.progress.say("    curl -s %s", w.Metrics)
	d.progress.say("    curl -s %s", w.Payments)
	d.progress.say("    psql '%s'", w.DSN)
}
