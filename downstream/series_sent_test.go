package downstream_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
)

// TestTransport_ARefusalDoesNotHideThatATryBeforeMayHaveBeenCarriedOut: whoever hears that a request was surely not carried
// out may send it anew under another key, and it would be carried out twice.
func TestTransport_ARefusalDoesNotHideThatATryBeforeMayHaveBeenCarriedOut(t *testing.T) {
	t.Parallel()
	const refused, lost, busy = 0, http.StatusBadGateway, http.StatusTooManyRequests
	for _, c := range []struct {
		name, method string
		tries        []int // the last one answers whatever comes after it
		want         fault.Class
		after        time.Duration
	}{
		{"LostThenRefused", http.MethodPost, []int{lost, refused}, fault.ClassAmbiguous, 0},
		{"LostThenTooManyRequests", http.MethodPost, []int{lost, busy}, fault.ClassAmbiguous, time.Second},
		{"RefusedLostRefused", http.MethodPost, []int{refused, lost, refused}, fault.ClassAmbiguous, 0},
		{"RefusedOnly", http.MethodPost, []int{refused}, fault.ClassTransient, 0},
		{"TooManyRequestsOnly", http.MethodPost, []int{busy}, fault.ClassTransient, time.Second},
		{"APutMayBeRepeatedWhateverBecameOfIt", http.MethodPut, []int{lost, refused}, fault.ClassTransient, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, err := downstream.New(downstream.Config{Name: "payments"})
				require.NoError(t, err)
				b := newBase(func(n int, req *http.Request) (*http.Response, error) {
					switch status := c.tries[min(n, len(c.tries))-1]; status {
					case refused:
						return nil, syscall.ECONNREFUSED
					case busy:
						return answer(req, busy, "Retry-After: 1")
					default:
						return answer(req, status)
					}
				})
				req, err := http.NewRequestWithContext(t.Context(), c.method, "http://payments/charges", strings.NewReader("7"))
				require.NoError(t, err)
				withKey(req)
				resp, err := (&http.Client{Transport: d.Transport(b)}).Do(req)
				if err == nil {
					err = downstream.Check(resp)
					require.NoError(t, resp.Body.Close())
				}
				f := new(fault.Classifier).ClassifyCall(t.Context(), err)
				require.Equal(t, c.want, f.Class, "%v", err)
				require.Equal(t, c.after, f.RetryAfter)
				require.Len(t, b.bodies, 3)
			})
		})
	}
}
