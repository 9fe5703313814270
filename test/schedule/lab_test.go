package schedule

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// patience is for what must happen, however busy the machine is.
const patience = 60 * time.Second

// effectsTable is where handlers write. It forbids nothing: what is there twice must be seen, not prevented.
func effectsTable(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `create table effects (seq bigint generated always as identity, run text, part int, off bigint, id text, member text);
		create index on effects (run)`)
	return err
}

// lab is a broker and a database on which schedules run one after the other.
type lab struct {
	t       *testing.T
	dsn     string
	pool    *pgxpool.Pool // the auditor's own
	brokers []string
	admin   *kadm.Client
	plain   *kgo.Client
	tx      *kgo.Client
	log     *slog.Logger
	runs    atomic.Int64
	leaving sync.WaitGroup // members whose connections are cut, on their way out
	seen    tally
}

func newLab(t *testing.T) *lab {
	t.Helper()
	fake := kafkatest.Fake(t)
	dsn := pgtest.DSN(t, migrations.Up, effectsTable)
	l := &lab{t: t, dsn: dsn, brokers: fake.ListenAddrs()}
	l.pool = pgtest.Pool(t, dsn)
	l.plain = kafkatest.Client(t, l.brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	l.tx = kafkatest.Client(t, l.brokers, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.TransactionalID(t.Name()))
	l.admin = kadm.NewClient(kafkatest.Client(t, l.brokers, kgo.MetadataMinAge(10*time.Millisecond)))
	out := io.Discard
	if os.Getenv("HEADRACE_SCHEDULE_LOG") != "" {
		out = t.Output()
	}
	l.log = slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	t.Cleanup(l.leaving.Wait)
	t.Cleanup(func() { l.seen.report(t) })
	return l
}

// run is a schedule that runs.
type run struct {
	*lab
	schedule

	topic, group string
	topicID      [16]byte
	log          *slog.Logger
	produced     []*sent
	poke         chan struct{} // a commit of offsets was answered
	members      []*member
	mark         *watermark
	outcomes     map[string]int // of the records, as the audit found them

	mu       sync.Mutex
	findings []string
}

// sent is a record that is in the topic.
type sent struct {
	rec
	at  place
	raw *kgo.Record
}

type place struct {
	partition int32
	offset    int64
}

func (p place) String() string { return fmt.Sprintf("%d/%d", p.partition, p.offset) }

// try runs a schedule once and gives what is wrong with it.
func (l *lab) try(s schedule) []string {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), 2*patience)
	defer cancel()
	name := "run" + strconv.FormatInt(l.runs.Add(1), 10)
	r := &run{lab: l, schedule: s, topic: name, group: name, log: l.log.With("run", name), poke: make(chan struct{}, 1)}
	r.prepare(ctx)
	r.produce(ctx, r.Records[:len(r.Records)-r.Late])
	r.live(ctx)
	r.end(ctx)
	r.audit(ctx)
	r.clean(ctx)
	l.seen.add(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.findings
}

func (r *run) complain(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findings = append(r.findings, fmt.Sprintf(format, args...))
}

func (r *run) prepare(ctx context.Context) {
	// A member that has to create those of the dead letters waits until it sees them, which takes longer than all the
	// rest of a schedule.
	small, forLetters := map[string]*string{"max.message.bytes": ptr("65536")}, map[string]*string{"retention.ms": ptr("-1")}
	for topic, configs := range map[string]map[string]*string{
		r.topic: small, r.topic + ".dlq": forLetters, r.topic + "." + r.group + ".replay": forLetters,
	} {
		created, err := r.admin.CreateTopic(ctx, int32(r.Partitions), 1, configs, topic)
		require.NoError(r.t, err)
		if topic == r.topic {
			r.topicID = created.ID
		}
	}
	r.mark = &watermark{run: r, verified: map[int32]int64{}}
}

func (r *run) clean(ctx context.Context) {
	_, err := r.admin.DeleteTopics(ctx, r.topic, r.topic+".dlq", r.topic+"."+r.group+".replay")
	require.NoError(r.t, err)
	_, err = r.pool.Exec(ctx, `truncate effects`)
	require.NoError(r.t, err)
}

// produce writes records in their order; neighbours that are alike go together.
func (r *run) produce(ctx context.Context, rs []rec) {
	for len(rs) > 0 {
		n := 1
		for n < len(rs) && rs[n].Tx == rs[0].Tx {
			n++
		}
		r.produceAlike(ctx, rs[:n])
		rs = rs[n:]
	}
}

func (r *run) produceAlike(ctx context.Context, rs []rec) {
	raw := make([]*kgo.Record, len(rs))
	for i, rec := range rs {
		raw[i] = r.raw(rec)
	}
	how := rs[0].Tx
	if how == 0 {
		require.NoError(r.t, r.plain.ProduceSync(ctx, raw...).FirstErr())
	} else {
		require.NoError(r.t, r.lab.tx.BeginTransaction())
		require.NoError(r.t, r.lab.tx.ProduceSync(ctx, raw...).FirstErr())
		require.NoError(r.t, r.lab.tx.EndTransaction(ctx, kgo.TransactionEndTry(how == committedTx)))
	}
	if how == abortedTx {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, rec := range rs {
		r.produced = append(r.produced, &sent{rec: rec, at: place{raw[i].Partition, raw[i].Offset}, raw: raw[i]})
	}
}

func (r *run) raw(rec rec) *kgo.Record {
	raw := &kgo.Record{Topic: r.topic, Partition: rec.partition(r.Partitions), Key: rec.key(), Value: rec.value()}
	if id := rec.id(); id != "" {
		raw.Headers = append(raw.Headers, kgo.RecordHeader{Key: "_watermill_message_uuid", Value: []byte(id)})
	}
	raw.Headers = append(raw.Headers, kgo.RecordHeader{Key: "nothing"}, kgo.RecordHeader{Key: "twice", Value: []byte("a")}, kgo.RecordHeader{Key: "twice", Value: []byte("b")})
	return raw
}

// live runs one life after the other, each with its share of the late records, and then a member to which nothing
// happens, until all is done.
func (r *run) live(ctx context.Context) {
	late := r.Records[len(r.Records)-r.Late:]
	var running sync.WaitGroup
	for i, life := range r.Lives {
		m := r.start(life.Events)
		share := len(late) / (len(r.Lives) - i)
		r.produce(ctx, late[:share])
		late = late[share:]
		if life.Overlap {
			running.Go(func() { m.see(ctx) })
		} else {
			m.see(ctx)
		}
	}
	running.Wait()
	r.produce(ctx, late)
	if !r.drained(ctx) {
		m := r.start(nil)
		m.see(ctx)
	}
}

// drained says whether everything that is in the topic by now is committed.
func (r *run) drained(ctx context.Context) bool {
	offsets, err := r.admin.FetchOffsets(ctx, r.group)
	if err != nil {
		return len(r.all()) == 0
	}
	return len(r.behind(offsets.Offsets())) == 0
}

// behind are the partitions of which not everything is committed.
func (r *run) behind(committed kadm.Offsets) (behind []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := map[int32]int64{}
	for _, s := range r.produced {
		next[s.at.partition] = s.at.offset + 1
	}
	for p, offset := range next {
		if at, ok := committed.Lookup(r.topic, p); !ok || at.At < offset {
			behind = append(behind, p)
		}
	}
	return behind
}

// visible are the records that anybody may see.
func (s schedule) visible() (rs []rec) {
	for _, r := range s.Records {
		if r.Tx != abortedTx {
			rs = append(rs, r)
		}
	}
	return rs
}

// end lets every member end that still runs, and waits until none can do anything any more.
func (r *run) end(ctx context.Context) {
	for _, m := range r.members {
		m.finish(ctx)
	}
	require.Eventually(r.t, func() bool {
		var n int
		err := r.pool.QueryRow(ctx, `select count(*) from pg_stat_activity where datname = current_database() and application_name like $1 || '-%'`, r.group).Scan(&n)
		require.NoError(r.t, err)
		return n == 0
	}, patience, 5*time.Millisecond, "the database still has sessions of members that are gone")
}

// dsnOf is the way to the database of one member.
func (r *run) dsnOf(name string) string {
	u, err := url.Parse(r.dsn)
	require.NoError(r.t, err)
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return u.String()
}

func ptr(s string) *string { return &s }
