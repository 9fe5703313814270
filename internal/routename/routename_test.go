package routename_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/routename"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ has, instead string }{
		"":               {},
		"charge-order":   {},
		"zahlung.über_2": {},
		"支払い:1":          {},
		"a b/c":          {"has ' ' in it", "a-b-c"},
		"/a":             {"has '/' in it", "a"},
		"a\x1b[31m":      {`has '\x1b' in it`, "a-[31m"},
		"a\u2028b":       {`has '\u2028' in it`, "a-b"},
		"a\u202eb":       {`has '\u202e' in it`, "a-b"}, // it turns what follows around
		"a\tb":           {`has '\t' in it`, "a-b"},
		"a\u00a0b":       {`has '\u00a0' in it`, "a-b"},
	} {
		wrong, instead := routename.Check(name)
		require.Equal(t, want.instead, instead, "%q", name)
		require.Equal(t, want.has == "", wrong == "", "%q", name)
		require.Contains(t, wrong, want.has, "%q", name)
	}
}
