package main

import (
	"testing"
	"time"

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
