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
const deadline = 250 * time.Millisecond

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
	if m.r.Kind == calls {
		return m.callRoute()
	}
	return consumer.Route[body]{Name: "post", Topic: m.r.topic, Apply: m.apply, Options: m.options()}
}

func (m *member) callRoute() consumer.AnyRoute {
	d, err := downstream.New(downstream.Config{
		Name: "payments", MaxConcurrent: 8, Breaker: downstream.BreakerConfig{MinRequests: 5, OpenFor: 10 * time.Millisecond},
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

func (m *member) apply(ctx context.Context, tx pgx.Tx, e consumer.Event[body]) error {
	m.line.hit(onHandle, nil)
	if _, err := tx.Exec(ctx, `insert into effects (run, part, off, id, member) values ($1, $2, $3, $4, $5)`,
		m.r.group, e.Partition, e.Offset, e.ID, m.name); err != nil {
		return err
	}
	k := e.Data.K
	if k > 0 && m.try(e.Partition, e.Offset, e.Data.Do) > k {
		return nil
	}
	do := e.Data.Do
	if state, ok := strings.CutPrefix(do, "sql "); ok {
		_, err := tx.Exec(ctx, fmt.Sprintf(`do $$ begin raise exception 'boom' using errcode = '%s'; end $$`, state))
		return err
	}
	switch do {
	case "hang":
		_, err := tx.Exec(ctx, `select pg_sleep(60)`)
		return err
	case "unavailable":
		return verb(do, "warehouse")
	}
	if strings.Contains(do, " ") { // it was the call's, or the decoder's
		return nil
	}
	return verb(do, "")
}
