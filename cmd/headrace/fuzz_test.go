package main

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// FuzzArguments wants a time and a place of a command line read or refused, and no panic.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{"", "2h", "3d", "2026-11-30", "2026-11-30T10:00:00Z", "3/120", "-1/2", "99999999999/1", "1/9223372036854775808", "1e9d"} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := parseTime("since", s, now); err != nil {
			require.NotEmpty(t, hintOf(err))
		}
		if partition, offset, ok := parsePlace(s); ok {
			require.True(t, partition >= 0 && offset >= 0)
		}
	})
}

// FuzzPasswordsIn wants the password of a connection string found wherever it may stand, and no panic of anything else.
func FuzzPasswordsIn(f *testing.F) {
	f.Add("postgres://u:p@h/db", "secret")
	f.Add("host=h password='a\\'b'", "p@/:%'\\")
	f.Fuzz(func(t *testing.T, dsn, password string) {
		_ = passwordsIn(dsn)
		for _, at := range []url.URL{
			{User: url.UserPassword("u", password)},
			{User: url.User("u"), RawQuery: "password=" + strings.ReplaceAll(url.QueryEscape(password), "+", "%20")}, // Postgres takes a + as it is
		} {
			at.Scheme, at.Host, at.Path = "postgres", "h", "/db"
			if _, err := pgconn.ParseConfig(at.String()); err == nil && password != "" {
				require.Contains(t, passwordsIn(at.String()), password)
			}
		}
	})
}
