package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// settings are the command line.
type settings struct {
	records    int
	partitions int
	seed       uint64
	brokers    []string
	dsn        string
	topic      string
	group      string
	transport  string
	store      string
	listen     string
	pace       time.Duration
	outage     time.Duration
	payments   time.Duration
	session    time.Duration
	json       bool
	stay       bool
	verbose    bool
	produce    bool
	consume    bool
	audit      bool
}

// The stores.
const (
	inboxStore  = "inbox"
	offsetStore = "offset"
)

// The transports.
const (
	ours           = "headrace"
	watermillKafka = "watermill-kafka"
)

func parse(args []string, usage io.Writer) (settings, error) {
	var s settings
	var brokers string
	fs := flag.NewFlagSet("demo-consumer", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // it would print every error, and all flags with it, before we do
	fs.IntVar(&s.records, "records", 20_000, "how many orders")
	fs.IntVar(&s.partitions, "partitions", 8, "how many partitions the topic gets")
	fs.Uint64Var(&s.seed, "seed", 1, "the same seed makes the same orders and faults; give all parts of a run the same")
	fs.StringVar(&brokers, "brokers", "", "host:port,… of a real Kafka instead of the built-in one")
	fs.StringVar(&s.dsn, "dsn", "", "connection string of a real Postgres instead of the built-in one")
	fs.StringVar(&s.topic, "topic", "", `the topic (default "orders"; on a real Kafka "orders-<time>")`)
	fs.StringVar(&s.group, "group", "", `the consumer group (default "billing"; on a real Kafka "billing-<time>")`)
	fs.StringVar(&s.transport, "transport", ours, `what reads from Kafka: "headrace", or "watermill-kafka", the stock Subscriber under the same stack`)
	fs.StringVar(&s.store, "store", inboxStore, `where orders are remembered: "inbox", a row each, or "offset", a row a partition, which knows no producer's duplicate: so none are produced; give all parts of a run the same`)
	fs.StringVar(&s.listen, "listen", "127.0.0.1:0", "where /livez, /readyz and /metrics are served")
	fs.DurationVar(&s.pace, "pace", 16*time.Second, "over what time the second half of the orders comes")
	fs.DurationVar(&s.outage, "outage", 3*time.Second, "for how long the database is away, 0 for no outage")
	fs.DurationVar(&s.payments, "payments-outage", 3*time.Second, "for how long the payment service stays away once its breaker has opened, 0 for no outage")
	fs.DurationVar(&s.session, "session", 10*time.Second, "after what silence of a member its partitions go to others: how long a restart waits after a kill")
	fs.BoolVar(&s.json, "json", false, "print nothing but the report, as one JSON object")
	fs.BoolVar(&s.stay, "stay", false, "keep everything up and consuming at the end, until interrupted, and count once more then")
	fs.BoolVar(&s.verbose, "verbose", false, "log to standard error")
	fs.BoolVar(&s.produce, "produce-only", false, "produce the orders and end")
	fs.BoolVar(&s.consume, "consume-only", false, "consume until the group has drained the topic, count, and end; start it again after a kill")
	fs.BoolVar(&s.audit, "audit-only", false, "only count")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(usage)
		fmt.Fprint(usage, about)
		fs.PrintDefaults()
		return s, err
	case err != nil:
		return s, err
	}
	if brokers != "" {
		s.brokers = strings.Split(brokers, ",")
	}
	return s.named(time.Now()), s.validate(fs.NArg())
}

// named gives a run on somebody's Kafka names of its own: a second run must not find the first one's records.
func (s settings) named(now time.Time) settings {
	suffix := ""
	if len(s.brokers) > 0 && !s.part() {
		suffix = now.UTC().Format("-20060102-150405")
	}
	if s.topic == "" {
		s.topic = "orders" + suffix
	}
	if s.group == "" {
		s.group = "billing" + suffix
	}
	return s
}

// part says that this process does only a part: broker and database are others' too.
func (s settings) part() bool { return s.produce || s.consume || s.audit }

// byOffset says that the offset store remembers.
func (s settings) byOffset() bool { return s.store == offsetStore }

func (s settings) validate(rest int) error {
	switch {
	case rest > 0:
		return errors.New("no arguments, only flags")
	case s.records < 1 || s.partitions < 1:
		return fmt.Errorf("-records %d and -partitions %d must be at least 1", s.records, s.partitions)
	case s.part() && (len(s.brokers) == 0 || s.dsn == ""):
		return errors.New("-produce-only, -consume-only and -audit-only need -brokers and -dsn: what they share with other processes")
	case s.stay && (s.produce || s.audit):
		return errors.New("-stay keeps a consumer up; -produce-only and -audit-only have none")
	case s.transport != ours && s.transport != watermillKafka:
		return fmt.Errorf("-transport %q must be %q or %q", s.transport, ours, watermillKafka)
	case s.store != inboxStore && s.store != offsetStore:
		return fmt.Errorf("-store %q must be %q or %q", s.store, inboxStore, offsetStore)
	case s.pace < 0 || s.outage < 0 || s.payments < 0 || s.session <= 0:
		return fmt.Errorf("-pace %s, -outage %s and -payments-outage %s must not be negative, and -session %s must be positive",
			s.pace, s.outage, s.payments, s.session)
	}
	return nil
}
