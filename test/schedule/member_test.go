package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/record"
)

// member is one life that is lived.
type member struct {
	r    *run
	name string
	line *lifeline
	hurt bool // something happens to it: its end may be an error
	stop context.CancelFunc
	gone chan struct{} // closed when Run has returned
	err  error         // of Run; valid once gone is closed
	done string        // how it ended

	mu    sync.Mutex
	tries map[string]int
}

// start starts a member.
func (r *run) start(events []event) *member {
	m := &member{
		r: r, name: fmt.Sprintf("%s-%d", r.group, len(r.members)), line: newLifeline(events), hurt: len(events) > 0,
		gone: make(chan struct{}), tries: map[string]int{},
	}
	r.enter(m)
	m.line.offsets = r.mark.check
	m.line.acked = func() {
		select {
		case r.poke <- struct{}{}:
		default:
		}
	}
	cfg, err := pgxpool.ParseConfig(r.dsnOf(m.name))
	require.NoError(r.t, err)
	cfg.ConnConfig.DialFunc = m.line.dial(database)
	cfg.MaxConns = 4
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	require.NoError(r.t, err)
	c, err := consumer.New(m.config(pool), m.route())
	require.NoError(r.t, err)
	r.leaving.Go(func() {
		defer close(m.gone)
		defer pool.Close()
		m.err = c.Run(ctx)
	})
	return m
}

func (r *run) enter(m *member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = append(r.members, m)
}

func (m *member) config(pool *pgxpool.Pool) consumer.Config {
	return consumer.Config{
		Brokers: m.r.brokers, Group: m.r.group, DB: pool, ClientID: m.name, Dial: m.line.dial(broker),
		CreateDeadLetterTopics: true,
		HeartbeatInterval:      20 * time.Millisecond, CommitInterval: 10 * time.Millisecond, SessionTimeout: 6 * time.Second,
		// kfake counts a member that leaves while it waits in sync as one that had joined, and then waits for one more than
		// there are until this is over.
		RebalanceTimeout: rebalanceTimeout,
		DrainGrace:       500 * time.Millisecond, HardGrace: 500 * time.Millisecond, CommitReserve: time.Second,
		DeadLetterTimeout: m.r.letterTimeout(), Writers: m.r.Writers, MaxInFlight: max(2*m.r.MaxBatch, 8),
		Hooks:  &record.Hooks{},
		Logger: m.r.log.With("member", m.name),
	}
}

// rebalanceTimeout must leave a schedule time after it, several times.
const rebalanceTimeout = patience / 6

// letterTimeout is short where members are killed: their last letters are under way for as long. Where nothing happens a
// busy machine must not be taken for a lost reply, after which there may be a second letter.
func (s schedule) letterTimeout() time.Duration {
	if len(s.Lives) == 0 {
		return 30 * time.Second
	}
	return time.Second
}

func (m *member) options() consumer.Options {
	o := consumer.Options{
		AttemptTimeout: 5 * time.Second, BackoffBase: time.Millisecond, BackoffCap: 4 * time.Millisecond,
		Order: orders[m.r.Order], MaxBatch: m.r.MaxBatch, Lanes: m.r.Lanes, Decode: m.decode,
		Store: stores[m.r.Store],
	}
	if m.r.hangs() {
		o.AttemptTimeout = deadline
	}
	return o
}

// see follows the member to its end: by an event, by itself, or because the work is done.
func (m *member) see(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case what := <-m.line.over:
			m.ended(ctx, what)
			return
		case <-m.gone:
			m.ended(ctx, "by itself")
			if !m.hurt {
				m.r.complain("%s ended by itself: %v", m.name, m.err)
			}
			return
		case <-late.C:
			m.r.complain("stuck: not everything is done after %s", patience)
			m.ended(ctx, crash)
			return
		case <-tick.C:
			m.r.bury(ctx)
		case <-m.r.poke:
		}
		if m.r.drained(ctx) {
			m.ended(ctx, stop)
			return
		}
	}
}

// ended does what is left of the member's end.
func (m *member) ended(ctx context.Context, how string) {
	m.done = how
	m.r.log.Info("ended", "member", m.name, "how", how, "counts", m.line.sum())
	switch how {
	case stop:
		m.stop()
		<-m.gone
		if m.err != nil && !m.hurt {
			m.r.complain("%s did not end well: %v", m.name, m.err)
		}
	case crash:
		m.line.kill()
		m.stop()
		m.r.bury(ctx)
	case isolate:
		m.r.bury(ctx)
	}
}

// finish ends a member that is isolated, or crashed.
func (m *member) finish(context.Context) {
	m.line.kill()
	m.stop()
}

// bury takes the members out of the group that cannot leave it: the broker would wait for the end of their sessions.
func (r *run) bury(ctx context.Context) {
	groups, err := r.admin.DescribeGroups(ctx, r.group)
	if err != nil {
		return
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = r.group
	for _, g := range groups {
		for _, gm := range g.Members {
			if r.isGone(gm.ClientID) {
				left := kmsg.NewLeaveGroupRequestMember()
				left.MemberID = gm.MemberID
				req.Members = append(req.Members, left)
			}
		}
	}
	if len(req.Members) > 0 {
		_, err := req.RequestWith(ctx, r.plain)
		if err != nil && !errors.Is(err, kgo.ErrClientClosed) {
			r.log.Warn("leave", "err", err)
		}
	}
}

func (r *run) isGone(client string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.members, func(m *member) bool { return m.name == client })
	return i >= 0 && r.members[i].line.isShut(broker)
}
