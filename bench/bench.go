package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/bench/internal/result"
	"github.com/headrace/headrace/internal/embedded"
	"github.com/headrace/headrace/internal/kafkatest"
)

// bench is what the scenarios share: the broker, the database, and what has come of it so far.
type bench struct {
	settings

	brokers []string
	db      *pgxpool.Pool
	dsn     string
	jdbc    string
	self    string // this binary
	jvm     *jvm
	results []result.Result

	// inbox is what the next runs find in Headrace's inbox, and ids what the records of their topics are named.
	inbox remembered
	ids   load.IDs
}

// production is what every server in production has been told: that there is more memory than Postgres' default of 128 MB
// supposes, and that a checkpoint may be minutes away.
var production = map[string]string{"shared_buffers": "1GB", "max_wal_size": "4GB"}

// start brings a real broker and a Postgres with production's durability up.
func start(ctx context.Context, s settings) (*bench, func() error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	// The script's own choice of JVM options starts a broker quickly; here it is to run well.
	if err := errors.Join(os.Setenv("KAFKA_JVM", ""), os.Setenv("KAFKA_HEAP", "1g")); err != nil {
		return nil, nil, err
	}
	broker, stopBroker, err := kafkatest.Launch(1)
	if err != nil {
		return nil, nil, err
	}
	server, err := embedded.Postgres(ctx, embedded.Config{Durable: true, Settings: production})
	if err != nil {
		return nil, nil, errors.Join(err, stopBroker())
	}
	db, err := pgxpool.New(ctx, server.DSN())
	if err != nil {
		return nil, nil, errors.Join(err, server.Close(), stopBroker())
	}
	stop := func() error {
		db.Close()
		return errors.Join(server.Close(), stopBroker())
	}
	b := &bench{settings: s, brokers: broker.Brokers(), db: db, dsn: server.DSN(), self: self}
	b.jdbc = jdbcURL(db.Config().ConnConfig.Host, db.Config().ConnConfig.Port, db.Config().ConnConfig.Database,
		db.Config().ConnConfig.User, db.Config().ConnConfig.Password)
	if b.jvm, err = findJVM(ctx, s); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return b, stop, nil
}

func jdbcURL(host string, port uint16, database, user, password string) string {
	return fmt.Sprintf("jdbc:postgresql://%s:%d/%s?user=%s&password=%s", host, port, database, user, password)
}

func (b *bench) bootstrap() string { return strings.Join(b.brokers, ",") }
