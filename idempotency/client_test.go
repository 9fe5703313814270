package idempotency_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
)

// caller is a route that calls the service, as package downstream has it: one try under the key of a record.
type caller struct {
	dependency *downstream.Dependency
	client     *http.Client
	ctx        context.Context
	url        string
}

func newCaller(t *testing.T, b *bed) *caller {
	t.Helper()
	d, err := downstream.New(downstream.Config{Name: "payments", RefuseInTransaction: true})
	require.NoError(t, err)
	base := &http.Transport{DisableKeepAlives: true}
	permit := downstream.Permit{Dependency: d, Group: "billing", Route: "charge", ID: uuid.New()}
	return &caller{d, &http.Client{Transport: d.Transport(base)}, downstream.WithPermit(t.Context(), permit), b.url}
}

// call says what the record's next call means.
func (c *caller) call(body string) (fault.Class, error) {
	r, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.url+"/charges", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Tenant", "acme")
	resp, err := c.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	err = downstream.Check(resp)
	return new(fault.Classifier).ClassifyCall(c.ctx, err).Class, err
}

// What our own client makes of what this package answers.
func TestOurClient(t *testing.T) {
	t.Parallel()

	means := func(t *testing.T, c *caller, body string, want fault.Class) {
		t.Helper()
		class, err := c.call(body)
		require.Error(t, err)
		require.Equal(t, want.String(), class.String(), "%v", err)
	}
	succeeds := func(t *testing.T, c *caller, body string) {
		t.Helper()
		_, err := c.call(body)
		require.NoError(t, err)
	}

	t.Run("AKeyInProgressIsBusy", func(t *testing.T) {
		t.Parallel()
		began, goOn := make(chan struct{}), make(chan struct{})
		b := open(t, tx(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-goOn
			charge(w, r)
		}))
		c := newCaller(t, b)
		first := make(chan error)
		go func() {
			_, err := c.call("7")
			first <- err
		}()
		<-began
		means(t, c, "7", fault.ClassBusy)
		close(goOn)
		require.NoError(t, <-first)
		succeeds(t, c, "7")
	})

	t.Run("AnUnknownKeyIsBusyUntilSomebodyResolvesIt", func(t *testing.T) {
		t.Parallel()
		fails := true
		var x world
		b := open(t, external(func(w http.ResponseWriter, r *http.Request) {
			if fails {
				w.WriteHeader(http.StatusGatewayTimeout)
				return
			}
			x.charge(w, r)
		}, nil))
		c := newCaller(t, b)
		means(t, c, "7", fault.ClassAmbiguous)
		means(t, c, "7", fault.ClassBusy)
		list, err := b.keys.Unknown(t.Context(), 1)
		require.NoError(t, err)
		fails = false
		require.NoError(t, b.keys.ResolveNotDone(t.Context(), list[0]))
		succeeds(t, c, "7")
	})

	t.Run("ARepeatWithAnotherBodyIsAnUnknownOutcome", func(t *testing.T) {
		t.Parallel()
		c := newCaller(t, open(t, tx(charge)))
		succeeds(t, c, "7")
		means(t, c, "8", fault.ClassAmbiguous)
	})

	// A handler's own 409 or 422 is taken for one about the key, until it is replayed: then it is known to be its answer.
	for _, code := range []int{http.StatusConflict, http.StatusUnprocessableEntity} {
		t.Run("TheHandlersOwn"+http.StatusText(code)+"IsPermanentOnceItIsReplayed", func(t *testing.T) {
			t.Parallel()
			c := newCaller(t, open(t, tx(status(code))))
			class, err := c.call("7")
			require.Error(t, err)
			require.NotEqual(t, fault.ClassPermanent, class)
			means(t, c, "7", fault.ClassPermanent)
		})
	}

	t.Run("AFailureOfOursIsTriedAgain", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(charge))
		c := newCaller(t, b)
		b.exec("alter table headrace.idempotency rename to gone")
		means(t, c, "7", fault.ClassTransient)
		b.exec("alter table headrace.gone rename to idempotency")
		succeeds(t, c, "7")
	})

	t.Run("WithoutAKeyOrACallerItIsTheRecordsFailureOrOurs", func(t *testing.T) {
		t.Parallel()
		b := open(t, tx(charge))
		c := newCaller(t, b)
		c.ctx = t.Context()
		_, err := c.call("7")
		var answer *fault.StatusError
		require.ErrorAs(t, err, &answer)
		require.Equal(t, http.StatusBadRequest, answer.Code)
	})
}
