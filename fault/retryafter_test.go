package fault_test

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/fault"
)

const year = 365 * 24 * time.Hour

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func httpDate(at time.Time) string { return at.UTC().Format(http.TimeFormat) }

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	behind := httpDate(noon.Add(-time.Hour))
	for _, r := range []struct {
		name, header, date string
		want               time.Duration
	}{
		{"Seconds", "120", "", 2 * time.Minute},
		{"SecondsWithSpaces", " 7 ", "", 7 * time.Second},
		{"SecondsIgnoreDate", "7", behind, 7 * time.Second},
		{"Zero", "0", "", 0},
		{"Missing", "", "", 0},
		{"MissingBesideADate", "", behind, 0},
		{"Negative", "-5", "", 0},
		{"Plus", "+5", "", 0},
		{"Fraction", "1.5", "", 0},
		{"Unit", "5s", "", 0},
		{"Hex", "0x10", "", 0},
		{"OtherDigits", "٣", "", 0},
		{"Garbage", "soon", "", 0},
		{"ADecade", "315360000", "", year},
		{"MoreThanADurationHolds", "9223372037", "", year},
		{"MoreThanAnIntegerHolds", "99999999999999999999999999", "", year},
		{"Date", httpDate(noon.Add(90 * time.Second)), "", 90 * time.Second},
		{"DateByTheServersClock", httpDate(noon.Add(-time.Hour + 30*time.Second)), behind, 30 * time.Second},
		{"DateWhenTheServersClockIsGarbled", httpDate(noon.Add(time.Minute)), "yesterday", time.Minute},
		{"PastDate", httpDate(noon.Add(-time.Second)), "", 0},
		{"PastDateByTheServersClock", httpDate(noon), httpDate(noon.Add(time.Second)), 0},
		{"YearNineThousand", "Fri, 01 Jan 9999 00:00:00 GMT", "", year},
		{"RFC850Date", "Sunday, 01-Mar-26 12:00:10 GMT", "", 10 * time.Second},
		{"AnsiDate", "Sun Mar  1 12:00:10 2026", "", 10 * time.Second},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, r.want, fault.ParseRetryAfter(r.header, r.date, noon))
		})
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, header := range []string{"", "0", "120", "-1", "99999999999999999999", "Sun, 01 Mar 2026 12:00:00 GMT", "soon", "\x00"} {
		f.Add(header, "", noon.Unix())
		f.Add(header, "Sun, 01 Mar 2026 11:00:00 GMT", int64(math.MaxInt32))
		f.Add("Fri, 31 Dec 9999 23:59:59 GMT", header, int64(-62135596800))
	}
	f.Fuzz(func(t *testing.T, header, date string, now int64) {
		at := time.Unix(now%(1<<36), 0)
		d := fault.ParseRetryAfter(header, date, at)
		require.GreaterOrEqual(t, d, time.Duration(0))
		require.LessOrEqual(t, d, year)
		require.Equal(t, d, fault.ParseRetryAfter(" "+header+" ", date, at), "spaces do not count")
		require.Zero(t, fault.ParseRetryAfter("-"+header, date, at), "nothing negative")
	})
}
