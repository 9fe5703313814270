package dedup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// schema is what the tests' handlers write to.
func schema(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `create table eff (n int not null, note text not null default '');
		create table acc (id int primary key, balance int not null default 0);
		create table uniq (n int primary key);
		create table late (n int unique deferrable initially deferred);
		insert into acc select generate_series(1, 10000)`)
	return err
}

// eachStore runs the tests of what every store promises, with each of them: newBench finds in a test's name which it is.
func eachStore(t *testing.T, tests func(t *testing.T)) {
	for _, s := range []Store{ByID, ByOffset} {
		t.Run(s.String(), tests)
	}
}

// eachWay is eachStore, and once more with an inbox that copies the rows of one record too: what is shown with few records
// holds for COPY as well.
func eachWay(t *testing.T, tests func(t *testing.T)) {
	eachStore(t, tests)
	t.Run("inbox_by_COPY", tests)
}

// eachTrip is eachStore, and once more with trips of a few records, and savepoints on their way, as soon as one fails: what
// is shown with few records holds for several trips and savepoints a group as well.
func eachTrip(t *testing.T, tests func(t *testing.T)) {
	eachStore(t, tests)
	t.Run("short_trips", tests)
}

func storeOf(t *testing.T) Store {
	if strings.Contains(t.Name(), "/offset_store") {
		return ByOffset
	}
	return ByID
}

// runByID runs what the offset store does not promise, for that reason, with the inbox alone.
func runByID(t *testing.T, name, _ string, test func(t *testing.T)) {
	t.Helper()
	if storeOf(t) == ByID {
		t.Run(name, test)
	}
}

// bench is what a test of the inbox stands on.
type workbench struct {
	t    *testing.T
	dsn  string
	pool *pgxpool.Pool // for looking
	in   *Inbox
	rt   *Route

	mu       sync.Mutex
	attempts map[string]int // by class
	answers  map[string]int
	groups   map[string]int
	reports  []record.Report
	others   int // records of an offset store that are done without an effect
}

type setup struct {
	cfg   Config
	route RouteConfig
	dsn   string // a proxy's, or another member's database
	look  string // where to look, if not through dsn
}

func newBench(t *testing.T, s setup) *workbench {
	t.Helper()
	b := &workbench{t: t, dsn: s.dsn, attempts: map[string]int{}, answers: map[string]int{}, groups: map[string]int{}}
	if b.dsn == "" {
		b.dsn = pgtest.DSN(t, migrations.Up, schema)
	}
	b.pool = pgtest.Pool(t, or(s.look, b.dsn))
	s.cfg.Hooks = &record.Hooks{
		OnAttempt: func(i record.AttemptInfo) { b.count(b.attempts, i.Class, 1) },
		OnInbox:   func(i record.InboxInfo) { b.count(b.answers, i.Answer, i.Records) },
		OnGroup:   func(i record.GroupInfo) { b.count(b.groups, i.Result, 1) },
		OnReport: func(r record.Report) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.reports = append(b.reports, r)
		},
	}
	s.cfg.vouchEvery = or(s.cfg.vouchEvery, time.Hour) // what a test calls a dead process runs
	var err error
	b.in, err = Open(t.Context(), pgtest.Pool(t, b.dsn), s.cfg)
	require.NoError(t, err)
	t.Cleanup(b.in.Close)
	if storeOf(t) == ByOffset {
		s.route.Store = ByOffset
	}
	b.rt, err = b.in.Route(t.Context(), named(s.route))
	require.NoError(t, err)
	if strings.Contains(t.Name(), "/short_trips") {
		b.rt.reach.least, b.rt.reach.every = 3, 2
	}
	if strings.Contains(t.Name(), "/savepoints_on_the_way") {
		b.rt.reach.every = 2
		b.rt.reach.failed(int(b.rt.reach.most))
	}
	if strings.Contains(t.Name(), "/inbox_by_COPY") {
		b.rt.caution.least = 1
	}
	return b
}

func (b *workbench) count(m map[string]int, key string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m[key] += n
}

func (b *workbench) counted(m map[string]int, key string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return m[key]
}

// run is Run with a deadline for the test, under a delivery that nobody ends.
func (b *workbench) run(rs []*record.Record, apply Apply) {
	b.t.Helper()
	b.runWork(rs, apply)
}

func (b *workbench) runWork(rs []*record.Record, work Work) {
	b.t.Helper()
	finishes(b.t, func() { b.rt.Run(context.Background(), rs, work) })
}

// groupsOf sets how many records a group takes, and gives how many it took.
func (b *workbench) groupsOf(n int) (before int) {
	b.rt.mu.Lock()
	defer b.rt.mu.Unlock()
	before, b.rt.pace.limit = b.rt.pace.limit, n
	return before
}

// finishes fails the test if f does not return in a time that no machine needs.
func finishes(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	await(t, done)
}

func await(t *testing.T, done <-chan struct{}) {
	t.Helper()
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		t.Fatal("nothing happened for half a minute")
	}
}

// owner settles like a claim does.
type owner struct {
	mu      sync.Mutex
	settled map[int64]record.Outcome
	soft    chan struct{}
}

func newOwner() *owner {
	return &owner{settled: map[int64]record.Outcome{}, soft: make(chan struct{})}
}

func (o *owner) Settle(r *record.Record, out record.Outcome) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, twice := o.settled[r.Offset]; twice {
		return false
	}
	o.settled[r.Offset] = out
	return true
}

func (o *owner) GiveBack([]*record.Record)    {}
func (o *owner) Wait([]*record.Record)        {}
func (o *owner) Resume([]*record.Record) bool { return true }

var topicID = uuid.MustParse("6f1d3c1e-6a51-4a6f-9c5a-2d5a7a0b9c11")

// rec makes record number n, with its number as identity and value.
func rec(o *owner, n int, key string) *record.Record {
	return recAs(o, n, key, fmt.Sprintf("id-%d", n), fmt.Sprintf("value-%d", n))
}

func recAs(o *owner, n int, key, id, value string) *record.Record {
	r := &record.Record{
		Topic: "orders", Offset: int64(n), Follows: int64(n) - 1, LeaderEpoch: 1, TopicID: topicID, Value: []byte(value),
		Headers: []record.Header{{Key: "id", Value: []byte(id)}},
	}
	domain := ""
	if key != "" {
		domain = "k" + key
	}
	r.Bind(o, o.soft, domain)
	if err := Identify(r, Header("id")); err != nil {
		panic(err)
	}
	return r
}

func recs(o *owner, n int) []*record.Record {
	rs := make([]*record.Record, n)
	for i := range rs {
		rs[i] = rec(o, i, "")
	}
	return rs
}

// effect is the ordinary handler.
func effect(ctx context.Context, tx pgx.Tx, r *record.Record) error {
	_, err := tx.Exec(ctx, "insert into eff (n) values ($1)", r.Offset)
	return err
}

// unless is effect, but for the records where f gives an error or does something else.
func unless(n int64, f Apply) Apply {
	return func(ctx context.Context, tx pgx.Tx, r *record.Record) error {
		if r.Offset == n {
			return f(ctx, tx, r)
		}
		return effect(ctx, tx, r)
	}
}

// queueEffect is effect, queued.
func queueEffect(_ context.Context, b *pgx.Batch, r *record.Record) error {
	b.Queue("insert into eff (n) values ($1)", r.Offset)
	return nil
}

// queueUnless is queueEffect, but for the records where f queues something else.
func queueUnless(n int64, f Queue) Queue {
	return func(ctx context.Context, b *pgx.Batch, r *record.Record) error {
		if r.Offset == n {
			return f(ctx, b, r)
		}
		return queueEffect(ctx, b, r)
	}
}

// batchEffect is effect, for all at once.
func batchEffect(ctx context.Context, tx pgx.Tx, rs []*record.Record) error {
	ns := make([]int64, len(rs))
	for i, r := range rs {
		ns[i] = r.Offset
	}
	_, err := tx.Exec(ctx, "insert into eff (n) select unnest($1::bigint[])", ns)
	return err
}

// requireLedger is the invariant: a row of the inbox for each effect and for nothing else, and no effect twice.
func (b *workbench) requireLedger(effects int) {
	b.t.Helper()
	if b.rt.cfg.Store == ByOffset {
		b.requireOffsets(effects)
		return
	}
	var rows, distinct, inbox int
	require.NoError(b.t, b.pool.QueryRow(context.Background(), `select count(*), count(distinct n),
		(select count(*) from headrace.inbox where state = 0) from eff`).Scan(&rows, &distinct, &inbox))
	require.Equal(b.t, []int{effects, effects, effects}, []int{rows, distinct, inbox}, "effects, distinct, inbox rows")
}

func requireOutcomes(t *testing.T, want record.Outcome, rs ...*record.Record) {
	t.Helper()
	for _, r := range rs {
		require.NoError(t, r.Err, "offset %d", r.Offset)
		require.Equal(t, want, r.Outcome(), "offset %d", r.Offset)
	}
}

func requireErr(t *testing.T, target error, rs ...*record.Record) {
	t.Helper()
	for _, r := range rs {
		require.ErrorIs(t, r.Err, target, "offset %d", r.Offset)
		require.False(t, r.Settled(), "offset %d", r.Offset)
	}
}

func without(rs []*record.Record, n int) []*record.Record {
	return append(append([]*record.Record{}, rs[:n]...), rs[n+1:]...)
}

func (b *workbench) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(context.Background(), sql, args...)
	require.NoError(b.t, err)
}

func query[T any](b *workbench, sql string, args ...any) (v T) {
	b.t.Helper()
	require.NoError(b.t, b.pool.QueryRow(context.Background(), sql, args...).Scan(&v))
	return v
}

var errBoom = errors.New("boom")

func named(cfg RouteConfig) RouteConfig {
	cfg.Group, cfg.Name = or(cfg.Group, "billing"), or(cfg.Name, "post")
	return cfg
}

// collected are values from goroutines.
type collected[T comparable] struct {
	mu   sync.Mutex
	list []T
}

func (s *collected[T]) add(v T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, v)
}

func (s *collected[T]) distinct() map[T]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[T]int{}
	for _, v := range s.list {
		m[v]++
	}
	return m
}

// altered is a fresh database whose owner prefers another setting.
func altered(t *testing.T, setting string) string {
	t.Helper()
	dsn := pgtest.DSN(t, migrations.Up, schema)
	pool := pgtest.Pool(t, dsn)
	name := pgx.Identifier{pool.Config().ConnConfig.Database}.Sanitize()
	_, err := pool.Exec(t.Context(), "alter database "+name+" set "+setting)
	require.NoError(t, err)
	return dsn
}

// skip is a handler that wants no effect.
func skip(ctx context.Context, tx pgx.Tx, r *record.Record) error {
	if err := effect(ctx, tx, r); err != nil {
		return err
	}
	return fault.Skip("not for us")
}
