package payments

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// shop is a service and somebody who asks it.
type shop struct {
	*Service
	client *http.Client
}

func open(t *testing.T, fault Fault) *shop {
	t.Helper()
	s, err := Start(t.Context(), Config{
		DSN: pgtest.DSN(t), Merchant: "orders", Slow: 10 * time.Second,
		Fault: func(string) Fault { return fault },
	})
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() { client.CloseIdleConnections(); s.Close() })
	return &shop{s, client}
}

// try makes one try of a charge.
func (s *shop) try(ctx context.Context, key, order string, amount int64) (status int, c Charge, err error) {
	body := fmt.Sprintf(`{"order":%q,"account":7,"amount":%d}`, order, amount)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/charges", strings.NewReader(body))
	if err != nil {
		return 0, c, err
	}
	r.Header["idempotency-key"] = []string{key} // as Transport spells it, so that net/http resends nothing by itself
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, c, err
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode, c, json.NewDecoder(resp.Body).Decode(&c)
}

func (s *shop) charges(t *testing.T) []Charge {
	t.Helper()
	all, err := Charges(t.Context(), s.client, s.URL())
	require.NoError(t, err)
	return all
}

func TestService(t *testing.T) {
	t.Parallel()

	t.Run("ChargesAKeyOnceHoweverManyAskAtOnce", func(t *testing.T) {
		t.Parallel()
		s := open(t, None)
		var wg sync.WaitGroup
		charged := make([]Charge, 100)
		for i := range charged {
			wg.Go(func() {
				for { // whoever comes meanwhile is told to come again
					status, c, err := s.try(t.Context(), "k", "a", 5)
					if err != nil || status != http.StatusConflict {
						charged[i] = c
						return
					}
				}
			})
		}
		wg.Wait()
		all := s.charges(t)
		require.Len(t, all, 1)
		for _, c := range charged {
			require.Equal(t, all[0], c)
		}
	})

	t.Run("ChargesAnOrderOfTwoKeysTwice", func(t *testing.T) {
		t.Parallel()
		s := open(t, None)
		for _, key := range []string{"k", "l"} {
			_, _, err := s.try(t.Context(), key, "a", 5)
			require.NoError(t, err)
		}
		require.Len(t, s.charges(t), 2)
	})

	t.Run("RefusesAKeyWithAnotherRequest", func(t *testing.T) {
		t.Parallel()
		s := open(t, None)
		_, _, err := s.try(t.Context(), "k", "a", 5)
		require.NoError(t, err)
		status, _, err := s.try(t.Context(), "k", "a", 6)
		require.NoError(t, err)
		require.Equal(t, http.StatusUnprocessableEntity, status)
	})

	t.Run("RefusesWhatIsNoOrder", func(t *testing.T) {
		t.Parallel()
		s := open(t, None)
		status, _, err := s.try(t.Context(), "k", "", 5)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, status)
		require.Empty(t, s.charges(t))
	})

	t.Run("ChargesAKeyTwiceWhereItForgets", func(t *testing.T) {
		t.Parallel()
		s := open(t, None)
		s.cfg.Forgetful = true
		for range 2 {
			_, _, err := s.try(t.Context(), "k", "a", 5)
			require.NoError(t, err)
		}
		require.Len(t, s.charges(t), 2)
	})

	t.Run("RefusesARequestWithoutAKey", func(t *testing.T) {
		t.Parallel()
		s := open(t, None)
		status, _, err := s.try(t.Context(), "", "a", 5)
		require.NoError(t, err)
		require.Equal(t, http.StatusBadRequest, status)
		require.Empty(t, s.charges(t))
	})

	t.Run("GivesTheAnswerThatWasLostToWhoAsksAgain", func(t *testing.T) {
		t.Parallel()
		s := open(t, Lost)
		_, _, err := s.try(t.Context(), "k", "a", 5)
		require.Error(t, err)
		charged := s.charges(t)
		require.Len(t, charged, 1, "charged before the answer was lost")
		status, c, err := s.try(t.Context(), "k", "a", 5)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, status)
		require.Equal(t, charged[0], c)
		require.Len(t, s.charges(t), 1)
	})

	t.Run("GivesTheAnswerThatWasLateToWhoAsksAgain", func(t *testing.T) {
		t.Parallel()
		s := open(t, Slow)
		ctx, cancel := context.WithCancel(t.Context())
		hungUp := make(chan error, 1)
		go func() {
			_, _, err := s.try(ctx, "k", "a", 5)
			hungUp <- err
		}()
		require.Eventually(t, func() bool { return len(s.charges(t)) == 1 }, 5*time.Second, 10*time.Millisecond)
		cancel()
		require.ErrorIs(t, <-hungUp, context.Canceled)
		status, c, err := s.try(t.Context(), "k", "a", 5)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, status)
		require.Equal(t, []Charge{c}, s.charges(t))
	})

	for name, tc := range map[string]struct {
		fault Fault
		want  int
	}{
		"Overloaded": {Overloaded, http.StatusServiceUnavailable},
		"Limited":    {Limited, http.StatusTooManyRequests},
	} {
		t.Run(name+"RefusesTheFirstTryOnly", func(t *testing.T) {
			t.Parallel()
			s := open(t, tc.fault)
			status, _, err := s.try(t.Context(), "k", "a", 5)
			require.NoError(t, err)
			require.Equal(t, tc.want, status)
			require.Empty(t, s.charges(t))
			status, _, err = s.try(t.Context(), "k", "a", 5)
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, status)
		})
	}

	t.Run("RefusesWhoHasNoFundsUntilTheyHavePaid", func(t *testing.T) {
		t.Parallel()
		s := open(t, Unpaid)
		for range 2 {
			status, _, err := s.try(t.Context(), "k", "a", 5)
			require.NoError(t, err)
			require.Equal(t, http.StatusPaymentRequired, status)
		}
		s.Mend()
		status, _, err := s.try(t.Context(), "k", "a", 5)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, status)
	})

	t.Run("RefusesEverybodyWhileItIsAway", func(t *testing.T) {
		t.Parallel()
		s := open(t, None)
		s.Away(true)
		status, _, err := s.try(t.Context(), "k", "a", 5)
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, status)
		s.Away(false)
		status, _, err = s.try(t.Context(), "k", "a", 5)
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, status)
	})

	t.Run("RefusesTheAccountsOfABankThatIsAwayAndNoOthers", func(t *testing.T) {
		t.Parallel()
		s := open(t, None)
		s.BankAway(true)
		charge := func() int {
			status, _, err := s.try(t.Context(), "k", "a", 5)
			require.NoError(t, err)
			return status
		}
		s.cfg.Bank = func(account int) bool { return account == 7 }
		require.Equal(t, http.StatusServiceUnavailable, charge())
		require.Equal(t, http.StatusServiceUnavailable, charge())
		require.EqualValues(t, 2, s.BankRefusals())
		require.Empty(t, s.charges(t))
		s.cfg.Bank = func(account int) bool { return account == 8 }
		require.Equal(t, http.StatusCreated, charge())
	})

	t.Run("KeepsTheBooksOfMerchantsApart", func(t *testing.T) {
		t.Parallel()
		s := open(t, None)
		_, _, err := s.try(t.Context(), "k", "a", 5)
		require.NoError(t, err)
		other, err := Start(t.Context(), Config{DSN: s.cfg.DSN, Merchant: "another"})
		require.NoError(t, err)
		defer other.Close()
		require.Empty(t, (&shop{other, s.client}).charges(t))
	})
}
