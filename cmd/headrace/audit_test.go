package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/audit"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/parking"
	"github.com/headrace/headrace/record"
)

// audited is a world in which a record has come to each of the outcomes, and whose consumer has ended.
type audited struct{ *world }

// fated is charge-order as one that does what an order's fate says.
func fated(w *world, options consumer.Options) consumer.AnyRoute {
	inner := w.route("charge-order").Apply
	return consumer.Route[order]{Name: "charge-order", Topic: "orders", Options: options, Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[order]) error {
		switch e.Data.Fate {
		case "skip":
			return fault.Skip("nothing to do")
		case "park":
			return fault.Park(fmt.Errorf("not my time"), time.Hour)
		}
		return inner(ctx, tx, e)
	}}
}

func (w *world) fate(id, fate string) record.Outcome {
	w.t.Helper()
	value, err := json.Marshal(order{ID: id, Fate: fate})
	require.NoError(w.t, err)
	w.order(id, value)
	return w.next().Outcome
}

// newAudited has, by offset: 0 to 2 effected, 3 a duplicate of 0, 4 skipped, 5 dead, 6 dead and effected by a replay, 7 dead
// again, 8 parked.
func newAudited(t *testing.T) *audited {
	t.Helper()
	w := newWorld(t)
	stop := w.startWith(fated(w, consumer.Options{Attempts: 1, Park: &parking.Policy{}}))
	for i, fate := range []string{"", "", ""} {
		require.Equal(t, record.Effected, w.fate(fmt.Sprint("order-", i), fate))
	}
	require.Equal(t, record.Duplicate, w.fate("order-0", ""))
	require.Equal(t, record.Skipped, w.fate("order-4", "skip"))
	w.die("order-5", "unknown")
	w.die("order-6", "unknown")
	w.die("order-7", "unknown")
	w.ok("dlq", "replay", "--topic", "orders.dlq", "--at", "orders/1/7")
	require.Equal(t, record.Dead, w.next().Outcome)
	w.healthy.Store(true)
	w.ok("dlq", "replay", "--topic", "orders.dlq", "--at", "orders/1/6")
	require.Equal(t, record.Effected, w.next().Outcome)
	require.Equal(t, record.Parked, w.fate("order-8", "park"))
	stop()
	return &audited{w}
}

// audit runs the command, and gives charge-order's ledger.
func (a *audited) audit(code int, args ...string) *audit.Ledger {
	a.t.Helper()
	r := a.run(append([]string{"audit", "--topic", "orders", "--group", "billing", "--json"}, args...)...)
	require.Equal(a.t, code, r.code, "%s%s", r.out, r.err)
	var got auditJSON
	require.NoError(a.t, json.Unmarshal([]byte(r.out), &got))
	require.Equal(a.t, code == exitOK, got.OK)
	require.Len(a.t, got.Routes, 1)
	l := got.Routes[0]
	require.Equal(a.t, l.Records, l.Effected+l.Duplicate+l.Skipped+l.Dead+l.Parked+l.Pending+l.Forgotten+l.Wrong)
	return l
}

func (a *audited) exec(sql string, args ...any) {
	a.t.Helper()
	tag, err := a.pool.Exec(a.t.Context(), sql, args...)
	require.NoError(a.t, err)
	require.EqualValues(a.t, 1, tag.RowsAffected())
}

func id(n int) string { return dedup.KeyOf(fmt.Sprint("order-", n)).String() }

func TestAudit(t *testing.T) {
	t.Parallel()

	t.Run("EveryRecordHasItsOutcome", func(t *testing.T) {
		t.Parallel()
		a := newAudited(t)
		want := audit.Ledger{
			Route: "charge-order", Records: 9, Effected: 4, Duplicate: 1, Skipped: 1, Dead: 2, Parked: 1, Replays: 2,
			Findings: []audit.Finding{}, Notes: []audit.Finding{},
		}
		require.Equal(t, &want, a.audit(exitOK))

		t.Log("what nobody has come to is pending")
		a.order("order-9", []byte(`{}`))
		want.Records, want.Pending = 10, 1
		require.Equal(t, &want, a.audit(exitOK))
		r := a.ok("audit", "--topic", "orders", "--group", "billing")
		require.Equal(t, "RECORDS  EFFECTED  DUPLICATE  SKIPPED  DEAD  PARKED  PENDING  FORGOTTEN  WRONG  ROUTE\n"+
			"     10         4          1        1     2       1        1          0      0  charge-order\n", r.out)
		require.Empty(t, r.err)
		require.Zero(t, a.audit(exitOK, "--since", "2099-01-01").Records)
	})

	t.Run("NamesWhatHasNoneOrTwo", func(t *testing.T) {
		t.Parallel()
		a := newAudited(t)
		finding := func(offset int64, outcomes int, what string) audit.Finding {
			return audit.Finding{Topic: "orders", Partition: 1, Offset: offset, Outcomes: outcomes, What: what}
		}
		parked := orderAt(8, "") // its id is by what the inbox knows it
		require.Equal(t, id(8), parked.Identity.Key.String())
		a.exec(`delete from headrace.inbox where message_id = $1`, id(1))
		a.exec(`update headrace.inbox set state = 2 where message_id = $1`, id(2))
		a.exec(`delete from headrace.inbox where message_id = $1`, id(5))
		a.exec(`update headrace.inbox set state = 0, original = null, coordinates = coalesce(original, coordinates) where message_id = $1`, id(7))
		a.exec(`insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates) select 1, message_id, 0, $1 from headrace.parked_records`,
			a.coordinates(8))
		l := a.audit(exitFailed)
		require.Equal(t, []audit.Finding{
			finding(1, 0, "it has no row, is not parked and has no letter"),
			finding(2, 0, "its row says that it is dead, and there is no letter"),
			finding(5, 0, "it has a dead letter, and no dead row"),
			finding(7, 2, "it is effected, and has a dead letter that was not replayed"),
			finding(8, 2, "it is effected, and parked"),
		}, l.Findings)
		require.EqualValues(t, 5, l.Wrong)
		r := a.run("audit", "--topic", "orders", "--group", "billing", "--limit", "2")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.out, "orders/1/1  charge-order  no outcome: it has no row, is not parked and has no letter\n")
		require.Contains(t, r.out, "… and 3 more of charge-order\n")
	})

	t.Run("ALetterThatStandsTwiceIsNamedAndCountsOnce", func(t *testing.T) {
		t.Parallel()
		a := newAudited(t)
		letter := kafkatest.ReadAll(t, a.brokers, "orders.dlq")[0]
		require.NoError(t, a.client.ProduceSync(t.Context(), &kgo.Record{
			Topic: "orders.dlq", Partition: letter.Partition, Key: letter.Key, Value: letter.Value, Headers: letter.Headers,
		}).FirstErr())
		l := a.audit(exitOK)
		require.EqualValues(t, 1, l.Repeated)
		require.Equal(t, []audit.Finding{{Topic: "orders", Partition: 1, Offset: 5, Outcomes: 1, What: "it has 2 letters of one death"}}, l.Notes)
		require.EqualValues(t, 2, l.Dead)
	})

	t.Run("AReplayThatWasPassedAndCameToNothing", func(t *testing.T) {
		t.Parallel()
		a := newAudited(t)
		a.ok("dlq", "replay", "--topic", "orders.dlq", "--at", "orders/1/5")
		require.EqualValues(t, 3, a.audit(exitOK).Replays)
		at := kafkatest.ReadAll(t, a.brokers, "orders.billing.replay")
		last := at[len(at)-1]
		for _, r := range at {
			if r.Timestamp.After(last.Timestamp) {
				last = r
			}
		}
		offsets := kadm.Offsets{}
		offsets.AddOffset(last.Topic, last.Partition, last.Offset+1, -1)
		require.NoError(t, kadm.NewClient(a.client).CommitAllOffsets(t.Context(), "billing", offsets))
		l := a.audit(exitFailed)
		require.EqualValues(t, 1, l.WrongReplays)
		require.Equal(t, "the replay of orders/1/5 was passed, and its record is dead as before", l.Findings[0].What)
	})

	t.Run("WhatASweptInboxNeedNotRememberIsForgotten", func(t *testing.T) {
		t.Parallel()
		a := newAudited(t)
		a.produce("orders", 2, time.Now().Add(-30*24*time.Hour), nil, []byte(`{"id":"ancient"}`))
		offsets := kadm.Offsets{}
		offsets.AddOffset("orders", 2, 1, -1)
		require.NoError(t, kadm.NewClient(a.client).CommitAllOffsets(t.Context(), "billing", offsets))
		a.exec(`update headrace.consumers set swept_at = null, sweep_page = 0`)
		require.EqualValues(t, 1, a.audit(exitFailed).Wrong, "nothing was ever swept")
		a.exec(`update headrace.consumers set swept_at = now()`)
		require.EqualValues(t, 1, a.audit(exitOK).Forgotten)
		require.Contains(t, a.ok("audit", "--topic", "orders", "--group", "billing").err, "1 record older than the topic's retention")
	})
}

func (a *audited) coordinates(offset int64) int64 {
	a.t.Helper()
	ids, err := kadm.NewClient(a.client).ListTopics(a.t.Context(), "orders")
	require.NoError(a.t, err)
	r := &record.Record{TopicID: [16]byte(ids["orders"].ID), Partition: 1, Offset: offset}
	_ = dedup.Identify(r)
	return r.Identity.Coordinates
}

// A route with an identity of its own must not look lost.
func TestAudit_IdentityOfTheRoutesOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startWith(fated(w, consumer.Options{Attempts: 1, Identity: []dedup.Resolver{dedup.Field("id")}}))
	require.Equal(t, record.Effected, w.fate("order-1", ""))
	value := []byte(`{"id":"order-1","fate":""}`) // the same order under another header
	w.produce("orders", 1, time.Now(), []byte("c-1"), value, record.Header{Key: record.UUIDHeader, Value: []byte("another")})
	require.Equal(t, record.Duplicate, w.next().Outcome)
	w.produce("orders", 1, time.Now(), []byte("c-1"), []byte(`{"id":"order-2"}`), record.Header{Key: record.UUIDHeader, Value: []byte("other")})
	require.Equal(t, record.Effected, w.next().Outcome)
	stop()
	a := &audited{w}
	l := a.audit(exitFailed)
	require.Equal(t, []int64{3, 2, 1, 1}, []int64{l.Records, l.Effected, l.Wrong, l.ByPlace})
	require.Contains(t, w.run("audit", "--topic", "orders", "--group", "billing").err, "name the route's Identity with --id-header or --id-field")
	l = a.audit(exitOK, "--id-field", "id")
	require.Equal(t, []int64{3, 2, 1, 0}, []int64{l.Records, l.Effected, l.Duplicate, l.ByPlace})
}

func TestAudit_OfTheOffsetStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.startWith(fated(w, consumer.Options{Attempts: 1, Store: dedup.ByOffset}))
	require.Equal(t, record.Effected, w.fate("order-0", ""))
	require.Equal(t, record.Skipped, w.fate("order-1", "skip"))
	w.die("order-2", "unknown")
	w.die("order-3", "unknown")
	w.healthy.Store(true)
	w.ok("dlq", "replay", "--topic", "orders.dlq", "--at", "orders/1/3")
	require.Equal(t, record.Effected, w.next().Outcome)
	stop()
	a := &audited{w}
	l := a.audit(exitOK)
	require.True(t, l.ByOffset)
	require.Equal(t, []int64{4, 3, 1, 1}, []int64{l.Records, l.Effected, l.Dead, l.Replays})
	require.Contains(t, w.ok("audit", "--topic", "orders", "--group", "billing").err, "it has the offset store")
	a.exec(`delete from headrace.inbox where state = 2`)
	require.Equal(t, "it has a dead letter, and no dead row", a.audit(exitFailed).Findings[0].What)
}

// What a consumer does at this moment must not look wrong: verdicts whose letters are to come, parked records whose effect
// has just been committed, duplicates, followers of parked keys.
func TestAudit_BesideAConsumerThatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startWith(fated(w, consumer.Options{Attempts: 1, Park: &parking.Policy{Base: 20 * time.Millisecond, Cap: 20 * time.Millisecond, Rounds: 3}}))
	const n = 300
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range n {
			fate, id := map[int]string{3: "skip", 5: "down", 8: "unknown"}[i%10], fmt.Sprint("order-", i)
			if i%20 == 17 {
				id = fmt.Sprint("order-", i-1)
			}
			value, err := json.Marshal(order{ID: id, Fate: fate})
			if err == nil {
				err = w.client.ProduceSync(t.Context(), &kgo.Record{
					Topic: "orders", Partition: int32(i % 4), Key: fmt.Appendf(nil, "c-%d", i%7), Value: value,
					Headers: []kgo.RecordHeader{{Key: record.UUIDHeader, Value: []byte(id)}},
				}).FirstErr()
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	a := &audited{w}
	w.next() // from here on the database knows that the route reads the topic
	var l *audit.Ledger
	for began := time.Now(); l == nil || l.Records < n || l.Pending+l.Parked > 0; {
		require.Less(t, time.Since(began), patience, "%+v", l)
		l = a.audit(exitOK)
	}
	<-sent
	require.Equal(t, []int64{n / 20 * 13, n / 20, n / 10, n / 10 * 2}, []int64{l.Effected, l.Duplicate, l.Skipped, l.Dead})
}

func TestAudit_WrongUseIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.known()
	for args, want := range map[string]string{
		"--group billing":                                     "no --topic",
		"--topic orders":                                      "no --group",
		"--topic orders --group b --since x":                  "neither an age nor a time",
		"--topic orders --group b --id-field a --id-header b": "exclude each other",
	} {
		r := w.run(append([]string{"audit"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, r.code, args)
		require.Contains(t, r.err, want, args)
	}
	for args, want := range map[string]string{
		"--topic other --group billing":                `unknown topic "other"`,
		"--topic orders --group billing":               "that has read the topic; it knows: charge-order",
		"--topic orders --group billing --route other": "that is called other",
	} {
		r := w.run(append([]string{"audit"}, strings.Fields(args)...)...)
		require.Equal(t, exitFailed, r.code, args)
		require.Contains(t, r.err, want, args)
		require.Contains(t, r.err, "fix: ", args)
	}
}
