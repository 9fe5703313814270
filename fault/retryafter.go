package fault

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter keeps what a header asks for addable to any clock. Who waits has a cap of its own, far below.
const maxRetryAfter = 365 * 24 * time.Hour

// ParseRetryAfter reads a Retry-After header: whole seconds, or an HTTP date, which counts from the answer's own Date
// header, so that the two clocks need not agree; from now if date is missing or unreadable. Negative, past and garbled
// values are 0, no floor; the longest is a year.
func ParseRetryAfter(header, date string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if digits(header) {
		return seconds(header)
	}
	at, err := http.ParseTime(header)
	if err != nil {
		return 0
	}
	if answered, err := http.ParseTime(strings.TrimSpace(date)); err == nil {
		now = answered
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

func seconds(digits string) time.Duration {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > uint64(maxRetryAfter/time.Second) {
		return maxRetryAfter
	}
	return time.Duration(n) * time.Second
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
