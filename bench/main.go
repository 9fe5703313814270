package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/embedded"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/jackc/pgx/v5/pgxpool"
)

// settings are the sizes of a run; the defaults are those of the figures in the README.
type settings struct {
	only            string
	records, keys   int
	rounds, backlog int
	lowLoad, calls  int
	profile         string
	contenders      string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if helps, err := helper(ctx, os.Args[1:]); helps {
		if err != nil {
			log.Fatal(err)
		}
		return
	}
	var s settings
	flag.StringVar(&s.only, "only", "throughput,latency,calls,poison,memory", "which parts to run, separated by commas")
	flag.IntVar(&s.records, "records", 100_000, "records a throughput run")
	flag.IntVar(&s.keys, "keys", 10_000, "keys, and accounts")
	flag.IntVar(&s.rounds, "rounds", 3, "turns of each contender; the median counts")
	flag.IntVar(&s.lowLoad, "low-load", 200, "records of a low-load run, ten a second")
	flag.IntVar(&s.calls, "calls", 2000, "records of a run with calls at 1 partition; at 8 four times as many")
	flag.IntVar(&s.backlog, "backlog", 1_000_000, "records of the memory run")
	flag.StringVar(&s.contenders, "contenders", "stock,headrace,headrace-stock", "who runs in the throughput and calls parts; the first is what the others are compared with")
	flag.StringVar(&s.profile, "cpuprofile", "", "write a CPU profile to this file")
	flag.Parse()
	if err := profiled(s.profile, func() error { return run(ctx, s) }); err != nil {
		log.Fatal(err)
	}
}

// helper is what this binary is in a process of its own, if the bench has started it as that.
func helper(ctx context.Context, args []string) (helps bool, err error) {
	switch {
	case len(args) == 2 && args[0] == slowArg:
		return true, slowConsumer(ctx, args[1])
	case len(args) == 1 && args[0] == paymentsArg:
		return true, servePayments(ctx, os.Stdout)
	}
	return false, nil
}

// profiled runs f under a CPU profile if file is given.
func profiled(file string, f func() error) error {
	if file == "" {
		return f()
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return err
	}
	err = f()
	pprof.StopCPUProfile()
	return errors.Join(err, out.Close())
}

func run(ctx context.Context, s settings) (err error) {
	e, stop, err := start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	parts := map[string]func(context.Context, env, settings) error{
		"throughput": throughput, "latency": lowLoad, "calls": calls, "poison": poisonCost, "memory": backlog,
	}
	for _, name := range strings.Split(s.only, ",") {
		part, ok := parts[name]
		if !ok {
			return fmt.Errorf("no part %q: throughput, latency, calls, poison, memory", name)
		}
		if err := part(ctx, e, s); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// start brings a real broker and a Postgres with production's durability up.
func start(ctx context.Context) (env, func() error, error) {
	broker, stopBroker, err := kafkatest.Launch(1)
	if err != nil {
		return env{}, nil, err
	}
	server, err := embedded.Postgres(ctx, embedded.Config{Durable: true})
	if err != nil {
		return env{}, nil, errors.Join(err, stopBroker())
	}
	cfg, err := pgxpool.ParseConfig(server.DSN())
	if err != nil {
		return env{}, nil, errors.Join(err, server.Close(), stopBroker())
	}
	cfg.MaxConns = 16
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return env{}, nil, errors.Join(err, server.Close(), stopBroker())
	}
	stop := func() error {
		db.Close()
		return errors.Join(server.Close(), stopBroker())
	}
	return env{brokers: broker.Brokers(), db: db, dsn: server.DSN()}, stop, nil
}

func throughput(ctx context.Context, e env, s settings) error {
	field, err := s.field(map[string]contender{
		"stock": stockStack{}, "headrace": headrace{}, "headrace-stock": headrace{stock: true},
	})
	if err != nil {
		return err
	}
	for _, partitions := range []int32{1, 8} {
		w, err := produce(ctx, e.brokers, workload{partitions: partitions, records: s.records, keys: s.keys}, 0)
		if err != nil {
			return err
		}
		rates, err := race(ctx, e, w, s.rounds, field...)
		if err != nil {
			return err
		}
		compare("throughput", w, rates, field)
	}
	return nil
}

// field is who of all takes part.
func (s settings) field(all map[string]contender) (field []contender, err error) {
	for _, name := range strings.Split(s.contenders, ",") {
		c, ok := all[name]
		if !ok {
			return nil, fmt.Errorf("no contender %q: stock, headrace, headrace-stock", name)
		}
		field = append(field, c)
	}
	return field, nil
}

func lowLoad(ctx context.Context, e env, s settings) error {
	p50, err := turns(ctx, e, s.rounds, s.lowLoad, 100*time.Millisecond, stockStack{}, headrace{})
	if err != nil {
		return err
	}
	ours, theirs := p50[headrace{}.name()], p50[stockStack{}.name()]
	fmt.Printf("low load, p50 from produce to committed effect: Headrace %s, stock %s: %.2fx\n", ours, theirs, float64(ours)/float64(theirs))
	return nil
}

// poisonCost compares a topic where every hundredth record is dead with the same topic without.
func poisonCost(ctx context.Context, e env, s settings) error {
	shape := workload{partitions: 8, records: s.records, keys: s.keys}
	clean, err := produce(ctx, e.brokers, shape, 0)
	if err != nil {
		return err
	}
	poisoned, err := produce(ctx, e.brokers, shape, 100)
	if err != nil {
		return err
	}
	var with, without []float64
	for range s.rounds {
		a, err := once(ctx, e, clean, headrace{})
		if err != nil {
			return err
		}
		b, err := once(ctx, e, poisoned, headrace{})
		if err != nil {
			return err
		}
		fmt.Printf("  clean %8.0f records/s, 1 %% poison %8.0f records/s\n", a, b)
		without, with = append(without, a), append(with, b)
	}
	fmt.Printf("1 %% poison costs %.0f %% of the rate\n", 100*(1-median(with)/median(without)))
	return nil
}

func backlog(ctx context.Context, e env, s settings) error {
	w, err := produce(ctx, e.brokers, workload{partitions: 8, records: s.backlog, keys: s.keys}, 0)
	if err != nil {
		return err
	}
	mb, err := memory(ctx, e, w, time.Minute)
	if err != nil {
		return err
	}
	fmt.Printf("memory: a backlog of %d records behind a slow handler: at most %d MB resident\n", s.backlog, mb)
	return nil
}
