package audit

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func schema(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, Schema)
	return err
}

// world is a ledger that adds up, made by hand: ten records of one key, one of them dead, one skipped, one a duplicate.
type world struct {
	t       *testing.T
	brokers []string
	pool    *pgxpool.Pool
	admin   *kadm.Client
	topicID uuid.UUID
	ledger  Ledger
	events  string
	dead    *kgo.Record
	dealt   []*kgo.Record
}

const (
	deadAt      = 3
	skippedAt   = 5
	duplicateAt = 7
	records     = 10
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, brokers: kafkatest.Fake(t).ListenAddrs()}
	dsn := pgtest.DSN(t, migrations.Up, schema)
	w.pool, w.admin = pgtest.Pool(t, dsn), kafkatest.Admin(t, w.brokers)
	topic := kafkatest.Topic(t, w.brokers, 1)
	w.events = topic + ".events"
	kafkatest.CreateTopic(t, w.brokers, w.events, 1)
	kafkatest.CreateTopic(t, w.brokers, deadLetters(topic), 1)
	details, err := w.admin.ListTopics(t.Context(), topic)
	require.NoError(t, err)
	w.topicID = uuid.UUID(details[topic].ID)
	w.ledger = Ledger{
		Brokers: w.brokers, DSN: dsn, Group: "g",
		Routes: []Route{{Name: "post", Topic: topic, Publishes: w.events}}, Secrets: Secrets{"payload": "s3cr"},
	}
	w.exec(`insert into headrace.consumers (consumer_group, route) values ('g', 'post')`)
	w.deal()
	w.commit(records)
	return w
}

func (w *world) topic() string { return w.ledger.Routes[0].Topic }

// deal writes the records, with what became of each.
func (w *world) deal() {
	var rs []*kgo.Record
	for i := range records {
		fate, id := Effect, fmt.Sprintf("id-%d", i)
		switch i {
		case deadAt:
			fate = Dead
		case skippedAt:
			fate = Skip
		case duplicateAt:
			id = "id-0"
		}
		rs = append(rs, w.record(fate, id))
	}
	w.produce(rs...)
	w.dead, w.dealt = rs[deadAt], rs
	told := []*kgo.Record{w.letterOf(w.dead)}
	for i, r := range rs {
		switch id := fmt.Sprintf("id-%d", i); i {
		case deadAt:
			w.row(id, deadRow, r.Offset)
		case skippedAt:
			w.row(id, skippedRow, r.Offset)
		case duplicateAt:
		default:
			w.row(id, effectedRow, r.Offset)
			w.effect(id, r.Offset)
			told = append(told, w.event(r.Offset))
		}
	}
	w.produce(told...)
}

func (w *world) record(fate, id string) *kgo.Record {
	return &kgo.Record{Topic: w.topic(), Key: []byte("k"), Value: []byte("{}"), Headers: []kgo.RecordHeader{
		{Key: "ce_id", Value: []byte(id)}, {Key: FateHeader, Value: []byte(fate)},
	}}
}

// further is one more record.
func (w *world) further(fate, id string) *kgo.Record {
	r := w.record(fate, id)
	w.produce(r)
	return r
}

func (w *world) produce(rs ...*kgo.Record) { kafkatest.Produce(w.t, w.brokers, rs...) }

func (w *world) letterOf(r *kgo.Record) *kgo.Record {
	envelope := []kgo.RecordHeader{
		{Key: "headrace-topic", Value: []byte(r.Topic)},
		{Key: "headrace-group", Value: []byte("g")},
		{Key: "headrace-route", Value: []byte("post")},
		{Key: "headrace-partition", Value: []byte(strconv.Itoa(int(r.Partition)))},
		{Key: "headrace-offset", Value: []byte(strconv.FormatInt(r.Offset, 10))},
		{Key: "headrace-timestamp", Value: []byte(strconv.FormatInt(r.Timestamp.UnixMilli(), 10))},
		{Key: "headrace-reason", Value: []byte("permanent")},
	}
	mark := kgo.RecordHeader{Key: markHeader, Value: []byte(strconv.Itoa(len(envelope)))}
	return &kgo.Record{
		Topic: deadLetters(r.Topic), Key: r.Key, Value: r.Value, Headers: append(append(r.Headers[:2:2], envelope...), mark),
	}
}

func (w *world) row(id string, state int, offset int64) {
	hash, _ := coordinates(w.topicID, place{0, offset})
	w.exec(`insert into headrace.inbox (consumer_id, message_id, state, value_hash, coordinates)
		select id, $1, $2, 0, $3 from headrace.consumers`, keyOf(id), state, hash)
}

func (w *world) park(r *kgo.Record) {
	w.exec(`insert into headrace.parked_records (consumer_id, key_id, topic_id, part, off, message_id, envelope)
		select id, 1, $1, 0, $2, $3, $4 from headrace.consumers`, w.topicID, r.Offset, keyOf(text(r, "ce_id")), w.envelope(r))
}

// envelope is the engine's, so that the auditor's idea of it is tested too.
func (w *world) envelope(r *kgo.Record) []byte {
	parked := &record.Record{
		Topic: r.Topic, TopicID: w.topicID, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value,
	}
	for _, h := range r.Headers {
		parked.Headers = append(parked.Headers, record.Header{Key: h.Key, Value: h.Value})
	}
	return parking.Encode(parked)
}

func (w *world) effect(id string, offset int64) {
	w.exec(`insert into effects (route, topic, part, off, id, key, account, amount) values ('post', $1, 0, $2, $3, 'k', 1, 10)`,
		w.topic(), offset, []byte(id))
	w.exec(`insert into balances as b values ('post', 1, 10) on conflict (route, account) do update set amount = b.amount + 10`)
}

func (w *world) event(offset int64) *kgo.Record {
	return &kgo.Record{Topic: w.events, Key: []byte("k"), Headers: []kgo.RecordHeader{
		{Key: "_watermill_message_uuid", Value: fmt.Appendf(nil, EventID, 0, offset)},
	}}
}

func (w *world) commit(at int64) {
	offsets := kadm.Offsets{}
	offsets.AddOffset(w.topic(), 0, at, -1)
	require.NoError(w.t, w.admin.CommitAllOffsets(w.t.Context(), "g", offsets))
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.pool.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err)
}

func TestALedgerThatAddsUpIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got, err := Run(t.Context(), w.ledger)
	require.NoError(t, err)
	require.Equal(t, Count{
		Produced: records, Effected: 7, Duplicate: 1, Skipped: 1, Dead: 1,
		Reasons: map[string]int{"permanent": 1}, Violations: []string{},
	}, got)
	left, err := Left(t.Context(), w.ledger)
	require.NoError(t, err)
	require.Empty(t, left)
}

// A group that is behind was told record by record that it had lost what it had not read, or taken it for duplicates.
func TestARecordThatIsNotReadYetIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.further(Effect, "unread")
	w.further(Effect, "1") // an id that is known
	got, err := Run(t.Context(), w.ledger)
	require.NoError(t, err)
	require.Len(t, got.Violations, 1, "%v", got.Violations)
	require.Contains(t, got.Violations[0], "is committed to 10; its records end at 12")
	require.Equal(t, records+2, got.Produced)
	require.Equal(t, records, got.Effected+got.Duplicate+got.Skipped+got.Dead)
}

func TestARecordThatIsParkedIsNeitherLostNorDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.further(Effect, "id-y")
	w.park(r)
	w.commit(r.Offset + 1)
	got, err := Run(t.Context(), w.ledger)
	require.NoError(t, err)
	require.Equal(t, 1, got.Parked)
	require.Empty(t, got.Violations)
	left, err := Left(t.Context(), w.ledger)
	require.NoError(t, err)
	require.Equal(t, "0 events in the outbox, 1 records parked", left)
}

// TestWhatIsWrongIsFound plants a violation in a ledger that adds up: an auditor that sees nothing has seen nothing.
func TestWhatIsWrongIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(*world)
		found string
	}{
		"LostEffect": {func(w *world) { w.exec(`delete from effects where off = 2`) }, "0/2 is LOST"},
		"LostRecord": {func(w *world) {
			w.exec(`delete from effects where off = 2`)
			w.exec(`delete from headrace.inbox where message_id = $1`, keyOf("id-2"))
		}, "0/2 is LOST: no effect, no letter, no row"},
		"SecondEffect":           {func(w *world) { w.effect("id-2", 2) }, "0/2 has 2 effects"},
		"SecondEffectOfAnID":     {func(w *world) { w.effect("id-0", duplicateAt) }, `id "id-0" has effects at`},
		"EffectWithoutRow":       {func(w *world) { w.exec(`delete from headrace.inbox where message_id = $1`, keyOf("id-2")) }, "0/2 has an effect and no inbox row"},
		"EffectOfNobody":         {func(w *world) { w.effect("id-x", 77) }, "an effect of 0/77, which is no record"},
		"EffectAndLetter":        {func(w *world) { w.effect("id-3", deadAt) }, "0/3 has an effect, and its inbox row is of state 2"},
		"EffectsOutOfOrder":      {func(w *world) { w.exec(`update effects set seq = default where off = 2`) }, "came before that of an earlier record of its key"},
		"BooksThatDoNotBalance":  {func(w *world) { w.exec(`update balances set amount = amount + 1`) }, "account 1 has 71, and its effects are 70"},
		"RowOfNobody":            {func(w *world) { w.row("id-x", effectedRow, 99) }, "10 inbox rows, and 9 records that should have one"},
		"OffsetBehind":           {func(w *world) { w.commit(records - 1) }, "is committed to 9; its records end at 10"},
		"OffsetBeyond":           {func(w *world) { w.commit(records + 1) }, "is committed to 11; its records end at 10"},
		"HealthyRecordThatDied":  {func(w *world) { w.died(w.further(Effect, "id-y")) }, "0/10 is dead, and its fate was effect (permanent"},
		"SickRecordWithAnEffect": {func(w *world) { w.worked(w.further(Dead, "id-y")) }, "0/10 is effected, and its fate was dead"},
		"LetterOfAnotherKey": {func(w *world) {
			l := w.letterOf(w.dead)
			l.Key = nil
			w.produce(l)
		}, "the dead letter of 0/3 has another key"},
		"LetterOfAnotherValue": {func(w *world) {
			l := w.letterOf(w.dead)
			l.Value = []byte("{} ")
			w.produce(l)
		}, "the dead letter of 0/3 has another value"},
		"LetterThatIsNone": {func(w *world) {
			w.produce(&kgo.Record{Topic: deadLetters(w.topic())})
		}, "is no letter of a route of this group"},
		"DeadWithoutALetter": {func(w *world) {
			w.exec(`delete from effects where off = 2`)
			w.exec(`update headrace.inbox set state = 2 where message_id = $1`, keyOf("id-2"))
		}, "0/2 is LOST"},
		"EventOfNoEffect":       {func(w *world) { w.produce(w.event(55)) }, `event "event-0-55" at 0/7 is of no effect`},
		"EffectOfAParkedRecord": {func(w *world) { w.park(w.dealt[2]) }, "0/2 is parked, and has 1 effects and 0 dead letters"},
		"ParkedWithAnotherKey": {func(w *world) {
			r := w.further(Effect, "id-y")
			r.Key = []byte{}
			w.park(r)
			w.commit(r.Offset + 1)
		}, "0/10 was parked with another key"},
		"ParkedOnceWithAnotherValue": {func(w *world) {
			r := *w.dealt[2]
			r.Value = nil
			w.ledger.Waited = append(w.ledger.Waited, Parked{"post", 0, 2, w.envelope(&r)})
		}, "0/2 was parked with another value"},
		"ParkedOnceWithoutAHeader": {func(w *world) {
			r := *w.dealt[2]
			r.Headers = r.Headers[:1]
			w.ledger.Waited = append(w.ledger.Waited, Parked{"post", 0, 2, w.envelope(&r)})
		}, "0/2 was parked with another headers"},
		"EnvelopeOfNothing": {func(w *world) {
			w.ledger.Waited = append(w.ledger.Waited, Parked{"post", 0, 2, w.envelope(w.dealt[2])[:40]})
		}, "the envelope of 0/2, which was parked: it cannot be read"},
		"PayloadInALettersError": {func(w *world) {
			l := w.letterOf(w.dead)
			mark := l.Headers[len(l.Headers)-1]
			mark.Value = []byte(strconv.Itoa(len(l.Headers) - 2))
			l.Headers = append(l.Headers[:len(l.Headers)-1], kgo.RecordHeader{Key: "headrace-error", Value: []byte("cannot read 73336372")}, mark)
			w.produce(l)
		}, "the headrace-error of a letter of 0/3 has a payload"},
		"EventsOutOfOrder": {func(w *world) {
			w.worked(w.further(Effect, "id-y"))
			w.worked(w.further(Effect, "id-z"))
			w.produce(w.event(11), w.event(10))
		}, "event event-0-11 was written before event-0-10 of its key"},
		"EffectWithNoEvent": {func(w *world) { w.worked(w.further(Effect, "id-y")) }, "the effect of 0/10 has no event"},
		"OpenTransactionInKafka": {func(w *world) {
			client := kafkatest.Client(w.t, w.brokers, kgo.TransactionalID("open"))
			require.NoError(w.t, client.BeginTransaction())
			require.NoError(w.t, client.ProduceSync(w.t.Context(), &kgo.Record{Topic: w.topic()}).FirstErr())
		}, "/0 has an open transaction"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c.plant(w)
			got, err := Run(t.Context(), w.ledger)
			require.NoError(t, err)
			require.Condition(t, func() bool { return mentions(got.Violations, c.found) }, "%q", got.Violations)
		})
	}
}

// died and worked are what becomes of one more record.
func (w *world) died(r *kgo.Record) {
	w.row(text(r, "ce_id"), deadRow, r.Offset)
	w.produce(w.letterOf(r))
	w.commit(r.Offset + 1)
}

func (w *world) worked(r *kgo.Record) {
	w.row(text(r, "ce_id"), effectedRow, r.Offset)
	w.effect(text(r, "ce_id"), r.Offset)
	w.commit(r.Offset + 1)
}
