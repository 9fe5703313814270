package outbox_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/outbox"
)

// running is a forwarder that runs until the test's end, or until it is ended.
type running struct {
	*outbox.Forwarder
	b   *bed
	end func()
}

func (b *bed) run(f *outbox.Forwarder) running {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	end := func() {
		cancel()
		require.NoError(b.t, <-ended)
	}
	return running{f, b, end}
}

func (r running) becomesReady() {
	r.b.t.Helper()
	r.b.eventually("it is ready", func() bool { return r.Ready() == nil })
}

func (r running) becomes(why string) {
	r.b.t.Helper()
	r.b.eventually("it says that "+why, func() bool { err := r.Ready(); return err != nil && strings.Contains(err.Error(), why) })
	require.NoError(r.b.t, r.Live(), "waiting is no reason to be restarted")
}

func TestForwarder_Ready(t *testing.T) {
	t.Parallel()

	t.Run("WhoseTurnItIsAndWhoWaitsForIt", func(t *testing.T) {
		t.Parallel()
		b := newBed(t, kfake.SeedTopics(1, "t"))
		var all []running
		for range 2 {
			f, err := outbox.NewForwarder(b.pool, b.config())
			require.NoError(t, err)
			require.EqualError(t, f.Ready(), "not started")
			require.NoError(t, f.Live())
			all = append(all, b.run(f))
		}
		for _, r := range all {
			r.becomesReady()
		}
		for _, r := range all {
			r.end()
			require.EqualError(t, r.Ready(), "not started")
		}
	})

	t.Run("NotWithoutBrokersAndAgainWithThem", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		proxied := &door{}
		proxied.shut()
		cfg := b.config()
		cfg.Client.Dial = proxied.dial
		f, err := outbox.NewForwarder(b.pool, cfg)
		require.NoError(t, err)
		r := b.run(f)
		defer r.end()
		r.becomes("the brokers have not answered yet: ")
		proxied.open()
		r.becomesReady()
	})

	t.Run("NotWithoutItsDatabaseAndAgainWithIt", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		proxy := pgtest.NewProxy(t, b.dsn)
		pool := pgtest.Pool(t, proxy.DSN())
		proxy.Down()
		f, err := outbox.NewForwarder(pool, b.config())
		require.NoError(t, err)
		r := b.run(f)
		defer r.end()
		r.becomes("the database, asked whose turn it is, has not answered yet: ")
		require.NoError(t, proxy.Accept())
		r.becomesReady()
	})

	t.Run("NotWhileItCannotReadWhatIsToBeSent", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.exec("alter table headrace.outbox rename to lent")
		f, err := outbox.NewForwarder(b.pool, b.config())
		require.NoError(t, err)
		r := b.run(f)
		defer r.end()
		r.becomes(`the database, asked for events, has not answered yet: ERROR: relation "headrace.outbox" does not exist`)
		b.exec("alter table headrace.lent rename to outbox")
		r.becomesReady()
	})
}

func (b *bed) exec(sql string) {
	b.t.Helper()
	_, err := b.pool.Exec(context.Background(), sql)
	require.NoError(b.t, err)
}
