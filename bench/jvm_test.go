package main

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/internal/embedded"
	"github.com/headrace/headrace/internal/kafkatest"
)

// failing makes two UPDATEs of a run fail. A sequence is not rolled back: the next attempt gets through.
const failing = `
	create sequence updates;
	create function fail_some() returns trigger language plpgsql as $$
	begin
		if nextval('updates') in (7, 400) then
			raise exception 'this one fails';
		end if;
		return new;
	end $$;
	create trigger fail_some before update on accounts for each row execute function fail_some();`

// Each of them reads a topic where every fifth record is a copy of the one before it, has two transactions rolled back, and
// then gets the whole topic again as a new group, as after the loss of its offsets.
func TestJVMPeers_PostEachRecordOnce(t *testing.T) {
	brokers := kafkatest.Real(t).Brokers()
	java := builtJVM(t)
	server, err := embedded.Postgres(t.Context(), embedded.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	db, err := pgxpool.New(t.Context(), server.DSN())
	require.NoError(t, err)
	t.Cleanup(db.Close)
	topic, err := load.Fill(t.Context(), brokers, load.Shape{Partitions: 4, Records: 1000, Keys: 100, Twice: 5})
	require.NoError(t, err)
	require.NoError(t, load.Reset(t.Context(), db, topic.Keys))
	_, err = db.Exec(t.Context(), failing)
	require.NoError(t, err)

	for _, c := range jvmPeers() {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, load.Reset(t.Context(), db, topic.Keys))
			_, err := db.Exec(t.Context(), `alter sequence updates restart`)
			require.NoError(t, err)
			group, conn := kafkatest.Name(t), db.Config().ConnConfig
			for delivery := range 2 {
				drain(t, java.command(c.jvm), child.Spec{
					Bootstrap: strings.Join(brokers, ","), DSN: server.DSN(),
					JDBC:  jdbcURL(conn.Host, conn.Port, conn.Database, conn.User, conn.Password),
					Topic: topic.Name, Group: group + strconv.Itoa(delivery), Partitions: topic.Partitions,
					Records: topic.Records, Mode: c.mode, Options: c.options,
				})
				require.NoError(t, load.Verify(t.Context(), db, topic, c.books), "delivery %d", delivery+1)
			}
		})
	}
}

// A peer that cannot do its work must not look like a slow one.
func TestJVMPeers_EndWithAnErrorWhereTheyCannotWork(t *testing.T) {
	java := builtJVM(t)
	for module, mode := range map[string]string{"spring": "spring-record", "parallel": "parallel-record"} {
		t.Run(module, func(t *testing.T) {
			p, err := child.Start(java.command(module), child.Spec{
				Bootstrap: "127.0.0.1:1", JDBC: "jdbc:postgresql://127.0.0.1:1/none", Topic: "none", Group: "none",
				Partitions: 1, Records: 1, Mode: mode,
			})
			require.NoError(t, err)
			defer p.Kill()
			require.ErrorContains(t, p.Ready(t.Context()), "the child ended")
		})
	}
}

// drain runs a child until it has seen all of its topic.
func drain(t *testing.T, argv []string, spec child.Spec) {
	t.Helper()
	p, err := child.Start(argv, spec)
	require.NoError(t, err)
	defer p.Kill()
	require.NoError(t, p.Ready(t.Context()))
	require.Eventually(t, func() bool { return p.Err() != nil || p.Seen() >= spec.Records }, 2*time.Minute, 10*time.Millisecond)
	_, begun := p.First()
	require.True(t, begun)
	_, err = p.Stop()
	require.NoError(t, err)
}

// builtJVM builds the peers, or skips the test where that cannot be done.
func builtJVM(t *testing.T) *jvm {
	t.Helper()
	java, err := findJVM(t.Context(), settings{})
	require.NoError(t, err)
	if !java.usable() {
		t.Skip("no Java or no Maven")
	}
	return java
}
