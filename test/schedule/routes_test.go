package schedule

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/record"
)

// deadline is of attempts and calls in schedules with records that need one.
const deadline = time.Second

var errBoom = errors.New("boom")

func (s schedule) hangs() bool {
	for _, r := range s.Records {
		if fateOf(r.Do).hangs {
			return true
		}
	}
	return false
}

func (m *member) route() consumer.AnyRoute {
	switch m.r.Kind {
	case calls:
		return m.callRoute()
	case queues:
		return consumer.QueueRoute[body]{Name: "post", Topic: m.r.topic, Queue: m.queue, Options: m.options()}
	case batches:
		return consumer.BatchRoute[body]{Name: "post", Topic: m.r.topic, Apply: m.applyAll, Options: m.options()}
	}
	return consumer.Route[body]{Name: "post", Topic: m.r.topic, Apply: m.apply, Options: m.options()}
}

func (m *member) callRoute() consumer.AnyRoute {
	d, err := downstream.New(downstream.Config{
		Name: "payments", MaxConcurrent: 8, RefuseInTransaction: true, Breaker: downstream.BreakerConfig{MinRequests: 5, OpenFor: 10 * time.Millisecond},
	})
	require.NoError(m.r.t, err)
	r := consumer.CallRoute[body, string]{
		Name: "post", Topic: m.r.topic, Dependency: d, Repeat: consumer.RepeatKeyed, CallTimeout: 5 * time.Second,
		Call: m.call, Options: m.options(),
		Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[body], result string) error {
			if result != e.ID {
				return fmt.Errorf("the result of another call: %s", result)
			}
			return m.apply(ctx, tx, e)
		},
	}
	if m.r.hangs() {
		r.CallTimeout = deadline
	}
	return r
}

// try counts the attempts of a record in this member.
func (m *member) try(partition int32, offset int64, what string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := fmt.Sprintf("%d/%d %s", partition, offset, what)
	m.tries[key]++
	return m.tries[key]
}

func (m *member) decode(r *record.Record, into any) error {
	if err := consumer.JSON(r, into); err != nil {
		return err
	}
	b := into.(*body)
	do, ok := strings.CutPrefix(b.Do, "decode ")
	if !ok || do == "transient" && m.try(r.Partition, r.Offset, b.Do) > b.K {
		return nil
	}
	if do == "unavailable" && m.try(r.Partition, r.Offset, b.Do) > b.K {
		return nil
	}
	return verb(do, "registry")
}

// verb fails as it is told to.
func verb(do, dependency string) error {
	switch do {
	case "transient", "exhausts":
		return fault.Transient(errBoom)
	case "permanent":
		return errBoom
	case "ambiguous":
		return fault.Ambiguous(errBoom)
	case "unavailable":
		return fault.Unavailable(errBoom, dependency)
	case "busy":
		return fault.Busy(errBoom)
	case "skip":
		return fault.Skip("not ours")
	case "panic":
		panic("boom")
	case "goexit":
		runtime.Goexit()
	}
	return nil
}

func (m *member) call(ctx context.Context, e consumer.Event[body]) (string, error) {
	do, ok := strings.CutPrefix(e.Data.Do, "call ")
	if !ok {
		return e.ID, nil
	}
	k := e.Data.K
	try := m.try(e.Partition, e.Offset, e.Data.Do)
	if k > 0 && try > k {
		return e.ID, nil
	}
	switch do {
	case "hang":
		<-ctx.Done()
		return "", ctx.Err()
	case "slow":
		select {
		case <-time.After(10 * time.Millisecond):
			return e.ID, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return e.ID, verb(do, "warehouse")
}

// effect is what every record's handler writes.
const effect = `insert into effects (run, part, off, id, member) values ($1, $2, $3, $4, $5)`

func (m *member) effectOf(e consumer.Event[body]) []any {
	return []any{m.r.group, e.Partition, e.Offset, e.ID, m.name}
}

func (m *member) apply(ctx context.Context, tx pgx.Tx, e consumer.Event[body]) error {
	m.line.hit(onHandle, nil)
	if _, err := tx.Exec(ctx, effect, m.effectOf(e)...); err != nil {
		return err
	}
	statement, err := m.fails(e)
	if statement != "" {
		_, err = tx.Exec(ctx, statement)
	}
	return err
}

func (m *member) queue(b *pgx.Batch, e consumer.Event[body]) error {
	m.line.hit(onHandle, nil)
	b.Queue(effect, m.effectOf(e)...)
	statement, err := m.fails(e)
	if statement != "" {
		b.Queue(statement)
	}
	return err
}

// applyAll names the members that fail by a verb. A statement that fails says of nobody that it was his.
func (m *member) applyAll(ctx context.Context, tx pgx.Tx, es []consumer.Event[body]) error {
	m.line.hit(onHandle, nil)
	failed := fault.Members{}
	b := &pgx.Batch{}
	for i, e := range es {
		b.Queue(effect, m.effectOf(e)...)
		statement, err := m.fails(e)
		if statement != "" {
			b.Queue(statement)
		}
		failed[i] = err
	}
	if len(failed.Failed()) > 0 {
		return failed
	}
	return tx.SendBatch(ctx, b).Close()
}

// fails gives the statement that fails, or the error, that the event asks for.
func (m *member) fails(e consumer.Event[body]) (statement string, err error) {
	do, k := e.Data.Do, e.Data.K
	if k > 0 && m.try(e.Partition, e.Offset, do) > k {
		return "", nil
	}
	if state, ok := strings.CutPrefix(do, "sql "); ok {
		return fmt.Sprintf(`do $$ begin raise exception 'boom' using errcode = '%s'; end $$`, state), nil
	}
	switch {
	case do == "hang":
		return `select pg_sleep(60)`, nil
	case strings.Contains(do, " "): // it was the call's, or the decoder's
		return "", nil
	}
	return "", verb(do, "warehouse")
}
