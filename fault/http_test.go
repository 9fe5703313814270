package fault_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	var rows []row
	add := func(class fault.Class, as string, e fault.StatusError, codes ...int) {
		for _, code := range codes {
			answer := e
			answer.Code, answer.Dependency = code, "payments"
			r := row{name: fmt.Sprintf("%d%s", code, as), err: &answer, class: class, rule: fmt.Sprintf("http %d", code)}
			if class == fault.ClassUnavailable {
				r.dep = "payments"
			}
			rows = append(rows, r)
		}
	}
	post := fault.StatusError{Method: http.MethodPost}
	keyed := fault.StatusError{Method: http.MethodPost, Keyed: true}
	told := fault.StatusError{Method: http.MethodPost, RetryAfter: time.Second}

	add(fault.ClassTransient, "", post, 421, 425, 429)
	add(fault.ClassAmbiguous, "", post, 408, 500, 502, 503, 504, 507, 520, 524, 599)
	add(fault.ClassUnavailable, "", post, 307, 308, 401, 407, 511)
	add(fault.ClassPermanent, "", post, 400, 403, 404, 409, 410, 412, 413, 415, 422, 501, 505, 200, 302, 0, 600, 999, -1)

	add(fault.ClassTransient, "WithRetryAfter", told, 429, 503)
	add(fault.ClassAmbiguous, "WithRetryAfter", told, 408, 500)

	add(fault.ClassTransient, "Keyed", keyed, 408, 429, 503)
	add(fault.ClassBusy, "Keyed", keyed, 409)
	add(fault.ClassAmbiguous, "Keyed", keyed, 422, 500, 502, 504)
	add(fault.ClassPermanent, "Keyed", keyed, 400, 404)

	add(fault.ClassTransient, "Get", fault.StatusError{Method: http.MethodGet}, 408, 500, 502, 503, 504)
	add(fault.ClassTransient, "Put", fault.StatusError{Method: http.MethodPut}, 408, 503)
	add(fault.ClassAmbiguous, "Put", fault.StatusError{Method: http.MethodPut}, 500, 504)
	add(fault.ClassAmbiguous, "WithoutAMethod", fault.StatusError{}, 503)
	check(t, rows)

	t.Run("TheFloorIsHandedOn", func(t *testing.T) {
		t.Parallel()
		got := new(fault.Classifier).Classify(t.Context(), &fault.StatusError{Code: 429, RetryAfter: 7 * time.Second})
		require.Equal(t, fault.Fault{Class: fault.ClassTransient, RetryAfter: 7 * time.Second, Rule: "http 429"}, got)
	})
	t.Run("NobodysCredentialsAreTheNetworks", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, fault.Network, new(fault.Classifier).Classify(t.Context(), &fault.StatusError{Code: 401}).Dependency)
	})
}

func TestNewStatusError(t *testing.T) {
	t.Parallel()
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", httpDate(noon))
		w.Header().Set("Retry-After", httpDate(noon.Add(time.Minute)))
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	for name, header := range map[string]string{"CanonicalKey": fault.IdempotencyKey, "KeyThatNetHTTPDoesNotKnow": "idempotency-key"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(answer))
			defer s.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/charge?token=secret", nil)
			require.NoError(t, err)
			req.Header[header] = []string{"k1"}
			resp, err := s.Client().Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())

			e := fault.NewStatusError(resp)
			require.Equal(t, &fault.StatusError{
				Code: 503, Method: http.MethodPost, Keyed: true, RetryAfter: time.Minute,
				Dependency: strings.TrimPrefix(s.URL, "http://"),
			}, e)
			require.EqualError(t, e, "POST: status 503 Service Unavailable", "no URL: it may carry a secret")
		})
	}
	t.Run("AnAnswerWithoutItsRequest", func(t *testing.T) {
		t.Parallel()
		e := fault.NewStatusError(&http.Response{StatusCode: 500})
		require.Equal(t, &fault.StatusError{Code: 500}, e)
		require.EqualError(t, e, "POST: status 500 Internal Server Error")
	})
}
