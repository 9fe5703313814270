package lab

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/test/attack/audit"
	"github.com/headrace/headrace/test/attack/load"
	"github.com/headrace/headrace/test/attack/member"
)

// Site is one run's part of a lab.
type Site struct {
	*Lab
	Group, Prefix string
	// DSN is the driver's own way to the database of the run.
	DSN string
	// Dir has the members' logs.
	Dir     string
	Members *Members
	// Admin is for whoever asks the brokers past the proxies. It knows nothing for long.
	Admin *kadm.Client
	// Service is what the members call.
	Service *Service
	// Earlier are letters that stood in dead letter topics which a fault has deleted.
	Earlier []audit.Letter
	// Waited are records that were seen parked.
	Waited []audit.Parked

	client *kgo.Client
	pooler *pooler // nil without one
}

// Site makes topics and a database, and no members yet.
func (l *Lab) Site(ctx context.Context, name string) (*Site, error) {
	s := &Site{Lab: l, Group: name, Prefix: name + "-", DSN: l.Postgres.DatabaseDSN(name)}
	var err error
	if s.Dir, err = os.MkdirTemp("", "headrace-attack-"+name+"-"); err != nil {
		return nil, err
	}
	if s.client, err = kgo.NewClient(kgo.SeedBrokers(l.Kafka.Brokers()...), kgo.MetadataMinAge(50*time.Millisecond)); err != nil {
		return nil, err
	}
	s.Admin = kadm.NewClient(s.client)
	if err := errors.Join(s.topics(ctx), s.database(ctx)); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	if s.Service, err = openService(); err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	s.Members = newMembers(s.Dir, s.member())
	return s, nil
}

func (s *Site) topics(ctx context.Context) error {
	forEver := "-1" // else records of 1970 are gone before the audit
	for name, partitions := range member.Topics(s.Prefix) {
		if _, err := s.Admin.CreateTopic(ctx, partitions, -1, map[string]*string{"retention.ms": &forEver}, name); err != nil {
			return fmt.Errorf("topic %s: %w", name, err)
		}
	}
	return nil
}

func (s *Site) database(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.Postgres.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{s.Group}.Sanitize()); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, s.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, audit.Schema)
	return err
}

// member is how the members reach everything: through the proxies.
func (s *Site) member() member.Config {
	cfg := member.Config{Brokers: s.Kafka.Brokers(), Proxies: map[string]string{}, Group: s.Group, Prefix: s.Prefix, Service: s.Service.addr}
	for _, w := range s.Network {
		cfg.Proxies[w.Upstream] = w.Addr()
	}
	u, err := url.Parse(s.SQL.DSN())
	if err != nil {
		panic(err) // the proxy has made it
	}
	u.Host, u.Path, u.User = s.Database.Addr(), "/"+s.Group, url.UserPassword(Role, password)
	cfg.DSN = u.String()
	return cfg
}

// Connect is the driver's own way to the run's database, past the proxies and past what a fault has set for the others.
func (s *Site) Connect(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(s.DSN)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["default_transaction_read_only"], cfg.RuntimeParams["statement_timeout"] = "off", "0"
	return pgx.ConnectConfig(ctx, cfg)
}

// Exec executes SQL in the run's database, past the proxies.
func (s *Site) Exec(ctx context.Context, sql string, args ...any) error {
	conn, err := s.Connect(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql, args...)
	return errors.Join(err, conn.Close(ctx))
}

// Ledger is what the auditor is to count. A flood guard begins anew in each process, and once more where what had its effect
// before comes again.
func (s *Site) Ledger() audit.Ledger {
	routes := member.Audited(s.Prefix)
	for i := range routes {
		if routes[i].Topic == member.Deployed(s.Prefix) {
			routes[i].Floods = 2 * member.FloodRun * s.Members.Buggy()
		}
	}
	return audit.Ledger{
		Brokers: s.Kafka.Brokers(), DSN: s.DSN, Group: s.Group, Routes: routes, Earlier: s.Earlier,
		Waited: s.Waited, Secrets: s.Secrets(),
	}
}

// Secrets are what no log, no metric and no letter's envelope may have.
func (s *Site) Secrets() audit.Secrets {
	return audit.Secrets{"password": password, "payload": load.Secret, "key": load.SecretKey}
}

// Close deletes the run's topics and its database, also when ctx has ended, and leaves its logs.
func (s *Site) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if s.Members != nil {
		s.Members.Kill()
	}
	if s.pooler != nil {
		s.pooler.close()
	}
	if s.Service != nil {
		_ = s.Service.close() // it may be closed
	}
	defer s.client.Close()
	return errors.Join(s.deleteTopics(ctx), s.drop(ctx))
}

// drop leaves no room taken for the runs that follow.
func (s *Site) drop(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.Postgres.DSN())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "drop database if exists "+pgx.Identifier{s.Group}.Sanitize()+" with (force)")
	return errors.Join(err, conn.Close(ctx))
}

func (s *Site) deleteTopics(ctx context.Context) error {
	names, err := s.Admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	var mine []string
	for name := range names {
		if len(name) > len(s.Prefix) && name[:len(s.Prefix)] == s.Prefix {
			mine = append(mine, name)
		}
	}
	_, err = s.Admin.DeleteTopics(ctx, mine...)
	return err
}
