package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/consumer"
	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/parking"
)

// consumersGrants are those of docs/security.md.
func (w *world) consumersGrants() (grants []string) {
	w.t.Helper()
	page, err := os.ReadFile("../docs/security.md")
	require.NoError(w.t, err)
	for _, found := range regexp.MustCompile(`(?m)^grant (.*) to billing;$`).FindAllStringSubmatch(string(page), -1) {
		grants = append(grants, found[1])
	}
	require.GreaterOrEqual(w.t, len(grants), 12)
	return grants
}

// role makes a role of its own with these grants, and gives the URL by which it connects. The owner's is another.
func (w *world) role(grants ...string) string {
	w.t.Helper()
	name := "role_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	w.exec("create role " + name + " login password 'x'")
	for _, grant := range grants {
		w.exec("grant " + grant + " to " + name)
	}
	u, err := url.Parse(w.dsn)
	require.NoError(w.t, err)
	u.User = url.UserPassword(name, "x")
	return u.String()
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	_, err := w.pool.Exec(w.t.Context(), sql, args...)
	require.NoError(w.t, err, sql)
}

// A consumer, its outbox, parking, sweep and the service with keys run as a role that may change data and nothing else.
func TestRole_ThatMayOnlyChangeItsTablesRunsEverything(t *testing.T) {
	t.Parallel()
	eachStore(t, "Consumer", func(t *testing.T, store dedup.Store) {
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 2)
		w.store = store
		owner := w.dsn
		w.dsn = w.role(append(w.consumersGrants(), "select, insert on effects", "select on repaired")...)
		told := w.publish(100, 20)
		w.produce(w.orders(10, 10, order{Do: "fail"})...)
		w.produce(w.orders(5, 5, order{Do: "skip"})...)
		s := w.setup()
		s.Forwards = true
		parked := 0
		if store == dedup.ByID { // the other cannot park
			s.Park = &parking.Policy{Base: 10 * time.Millisecond, Cap: 20 * time.Millisecond, Rounds: 50}
			s.Attempts = 1
			parked = 5
			w.produce(w.orders(parked, 5, order{Do: "partner"})...)
		}
		s.Tune = func(c *consumer.Config) { c.InboxRetention = 60 * 24 * time.Hour }
		m := w.start(s)
		w.eventually("the outbox is sent", func() bool { return w.outbox() == 0 })
		w.drained()
		if parked > 0 {
			require.GreaterOrEqual(t, w.waiting(), parked, "with those behind them")
			w.repair("post")
			w.nothingParked()
		}
		m.quit()
		if store == dedup.ByID {
			w.sweeps(s)
		}
		require.Equal(t, tally{Records: 115 + parked, Effected: 100 + parked, Skipped: 5, Dead: 10}, w.one())
		w.inOrderOf(told)
		w.commands(owner)
		w.mayNot()
	})

	t.Run("ServiceWithKeys", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		w.dsn = w.role(append(w.consumersGrants(), "select, insert on effects")...)
		pool := pgtest.Pool(t, w.dsn)
		keys, err := idempotency.New(pool, idempotency.Config{Principal: idempotency.OnePrincipal})
		require.NoError(t, err)
		require.NoError(t, keys.Check(t.Context()))
		tx := keys.Tx("tx", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if _, err := idempotency.Tx(r.Context()).Exec(r.Context(), `insert into effects (route) values ('tx')`); err != nil {
				rw.WriteHeader(http.StatusTeapot)
				return
			}
			rw.WriteHeader(http.StatusCreated)
		}))
		lost := keys.External("lost", http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusGatewayTimeout) }), nil)
		ask := func(h http.Handler, key string) int {
			rec := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set(idempotency.Header, key)
			h.ServeHTTP(rec, r)
			return rec.Code
		}
		require.Equal(t, http.StatusCreated, ask(tx, "a"))
		require.Equal(t, http.StatusCreated, ask(tx, "a"))
		ask(lost, "b")
		unknown, err := keys.Unknown(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, unknown, 1)
		require.NoError(t, keys.ResolveDone(t.Context(), unknown[0], idempotency.Answer{Status: http.StatusOK}))
		require.Equal(t, http.StatusOK, ask(lost, "b"))
		w.exec(`update headrace.idempotency set finished_at = now() - interval '10 years'`)
		swept, err := keys.Sweep(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, swept)
		require.Equal(t, 1, w.effected())
		w.mayNot()
	})
}

// sweeps lets a member find rows that are long past their retention.
func (w *world) sweeps(s setup) {
	w.t.Helper()
	w.exec(`update headrace.consumers set swept_at = null, sweep_page = 0`)
	w.exec(`insert into headrace.inbox (consumer_id, message_id, value_hash, coordinates, created_at)
		select id, gen_random_uuid(), 0, 0, now() - interval '10 years' from headrace.consumers`)
	m := w.start(s)
	w.eventually("they are swept away", func() bool {
		return w.number(`select count(*) from headrace.inbox where created_at < now() - interval '9 years'`) == 0
	})
	m.quit()
}

// inOrderOf requires that each event is there.
func (w *world) inOrderOf(told []string) {
	w.t.Helper()
	there := map[string]bool{}
	for _, r := range w.read(w.topic) {
		there[string(r.Headers[0].Value)] = true
	}
	for _, id := range told {
		require.True(w.t, there[id])
	}
}

// commands run as the role, and those that need the owner say so.
func (w *world) commands(owner string) {
	w.t.Helper()
	path := built(w.t, "headrace")
	run := func(dsn string, args ...string) (string, error) {
		cmd := exec.CommandContext(w.t.Context(), path, args...)
		cmd.Env = append(cmd.Environ(), "DATABASE_URL="+dsn, "HEADRACE_BROKERS="+strings.Join(w.brokers, ","))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{
		{"migrate", "status"},
		{"outbox", "status"},
		{"parked", "ls"},
		{"idempotency", "ls"},
		{"dlq", "ls", "--topic", w.deadLetters, "--state", "--group", w.group},
		{"audit", "--topic", w.topic, "--group", w.group},
	} {
		out, err := run(w.dsn, args...)
		require.NoError(w.t, err, "%v: %s", args, out)
	}
	_, err := run(w.dsn, "migrate", "down")
	require.Error(w.t, err)
	out, err := run(owner, "migrate", "status")
	require.NoError(w.t, err, out)
}

// mayNot is what the role is not allowed to do.
func (w *world) mayNot() {
	w.t.Helper()
	pool := pgtest.Pool(w.t, w.dsn)
	for _, sql := range []string{
		`truncate headrace.inbox`, `drop table headrace.inbox`, `alter table headrace.inbox add column x int`, `create table headrace.x (i int)`,
		`create table public.x (i int)`, `delete from headrace.migrations`, `delete from headrace.consumers`, `delete from headrace.claim_starts`, `update effects set id = ''`, `delete from effects`,
	} {
		_, err := pool.Exec(w.t.Context(), sql)
		require.ErrorContains(w.t, err, "42501", sql)
	}
}
