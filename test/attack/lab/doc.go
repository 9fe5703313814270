// Package lab is what a run attacks: a real Kafka of three nodes, a real Postgres, proxies in front of both, and members of
// the consumer group in processes of their own.
//
//	members ─► toxiproxy ─► tap, one a broker ─► brokers
//	        └► toxiproxy ─► tap ─► a proxy that knows Postgres' protocol ─► Postgres
//
// The nodes, Postgres and the proxies live as long as the lab; a [Site] is one run's topics, database and members.
package lab

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/internal/embedded"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/test/attack/load"
)

// Nodes is how many brokers there are.
const Nodes = 3

// Lab is a cluster, a server and their proxies. Its parts may be broken side by side; whoever breaks one mends it before
// somebody else breaks the same. Whoever opened it closes it.
type Lab struct {
	Kafka    *kafkatest.Cluster
	Postgres *embedded.Server
	// Data is what Postgres' data is on, nil where it is on none of its own.
	Data *Volume
	// SQL is the proxy that knows what is a COMMIT. It is in front of the whole server.
	SQL *pgtest.Proxy
	// Network are the ways of the members to each broker.
	Network []*Wire
	// Database is their way to the SQL proxy.
	Database *Wire
	// Clients of other languages.
	Clients []load.Client

	dir       string // for what is built
	stopKafka func() error
	wires     *wires
}

// Config is what labs differ in.
type Config struct {
	// Volume puts Postgres' data on a volume that can be full, where one can be made. It has room for hours of scenarios, not
	// for a soak.
	Volume bool
}

// Open starts everything.
func Open(ctx context.Context, cfg Config) (*Lab, error) {
	l := &Lab{}
	var err error
	if l.Kafka, l.stopKafka, err = kafkatest.Launch(Nodes, authorizer...); err != nil {
		return nil, err
	}
	if err := l.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) open(ctx context.Context, cfg Config) (err error) {
	if l.Postgres, err = l.postgres(ctx, cfg); err != nil {
		return err
	}
	if err := l.role(ctx); err != nil {
		return err
	}
	if l.SQL, err = pgtest.OpenProxy(l.Postgres.DSN()); err != nil {
		return err
	}
	l.wires = newWires()
	for _, broker := range l.Kafka.Brokers() {
		w, err := l.wires.lay(broker, true)
		if err != nil {
			return err
		}
		l.Network = append(l.Network, w)
	}
	if l.Database, err = l.wires.lay(l.SQL.Addr(), false); err != nil {
		return err
	}
	return l.clients(ctx)
}

func (l *Lab) postgres(ctx context.Context, cfg Config) (*embedded.Server, error) {
	server := embedded.Config{Settings: map[string]string{"deadlock_timeout": "200ms"}}
	if cfg.Volume {
		var err error
		if l.Data, err = mountVolume(); err != nil {
			slog.Warn("no volume of its own for the database: it is never full", "err", err)
		} else {
			server.Dir = l.Data.dir
		}
	}
	return embedded.Postgres(ctx, server)
}

// Role is the members' in the database. Nobody else has it, nor its password, which must not be seen anywhere.
const (
	Role     = "attack_member"
	password = "s3cr3t-p4ssw0rd"
)

func (l *Lab) role(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, l.Postgres.DSN())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "create role "+Role+" superuser login password '"+password+"'")
	return errors.Join(err, conn.Close(ctx))
}

// clients leaves librdkafka out where it cannot be built, but not where everything is required.
func (l *Lab) clients(ctx context.Context) (err error) {
	if l.dir, err = os.MkdirTemp("", "headrace-attack-lab-"); err != nil {
		return err
	}
	l.Clients = []load.Client{load.Java(l.Kafka.Script())}
	c, err := load.Librdkafka(ctx, l.Kafka.Script(), l.dir)
	switch {
	case err == nil:
		l.Clients = append(l.Clients, c)
	case os.Getenv("CI") == "true":
		return err
	default:
		slog.Warn("without librdkafka", "err", err)
	}
	return nil
}

// Close ends everything.
func (l *Lab) Close() error {
	errs := []error{os.RemoveAll(l.dir)}
	if l.wires != nil {
		errs = append(errs, l.wires.close())
	}
	if l.SQL != nil {
		l.SQL.Close()
	}
	if l.Postgres != nil {
		errs = append(errs, l.Postgres.Close())
	}
	if l.Data != nil {
		errs = append(errs, l.Data.close())
	}
	return errors.Join(append(errs, l.stopKafka())...)
}
