package pgtest

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

func encode(t testing.TB, messages ...pgproto3.FrontendMessage) []byte {
	t.Helper()
	var out []byte
	for _, m := range messages {
		var err error
		out, err = m.Encode(out)
		require.NoError(t, err)
	}
	return out
}

// requests lists what the messages in raw execute, a request a row.
func requests(raw []byte) [][]string {
	in, follow := bytes.NewReader(raw), newStatements()
	var all [][]string
	for {
		m, err := readMessage(in)
		if err != nil {
			return all
		}
		if follow.see(m) {
			all = append(all, follow.take())
		}
	}
}

func TestStatements(t *testing.T) {
	t.Parallel()
	raw := encode(
		t,
		&pgproto3.Query{String: "begin"},
		&pgproto3.Parse{Name: "s1", Query: "insert into a values ($1)"},
		&pgproto3.Describe{ObjectType: 'S', Name: "s1"},
		&pgproto3.Sync{},
		&pgproto3.Bind{PreparedStatement: "s1"},
		&pgproto3.Execute{},
		&pgproto3.Bind{DestinationPortal: "p2", PreparedStatement: "s1"},
		&pgproto3.Execute{Portal: "p2"},
		&pgproto3.Sync{},
		&pgproto3.Query{String: "commit"},
	)
	require.Equal(t, [][]string{
		{"begin"},
		nil,
		{"insert into a values ($1)", "insert into a values ($1)"},
		{"commit"},
	}, requests(raw))
}

func TestCommit(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]bool{
		"commit":                          true,
		"  COMMIT ":                       true,
		"END":                             true,
		"select 1; commit":                true,
		"commit; begin":                   true,
		"select committed from end_of_it": false,
		"update a set x = 'commit'":       false,
		"select case when a then b end":   false,
	} {
		require.Equal(t, want, Commit(Request{SQL: []string{sql}}), sql)
	}
}

func TestReadStartup_RefusesWhatIsTooShort(t *testing.T) {
	t.Parallel()
	_, _, err := readStartup(bytes.NewReader([]byte{0, 0, 0, 4}))
	require.ErrorContains(t, err, "0 bytes")
}

func FuzzRequests(f *testing.F) {
	f.Add(encode(f, &pgproto3.Query{String: "begin"}, &pgproto3.Sync{}))
	f.Add(encode(f, &pgproto3.Parse{Name: "s", Query: "q"}, &pgproto3.Bind{PreparedStatement: "s"}, &pgproto3.Execute{}, &pgproto3.Sync{}))
	f.Add([]byte{'P', 0, 0, 0, 4, 'B', 0, 0, 0, 5, 'x', 'E', 0, 0, 0, 4, 'S', 0, 0, 0, 4})
	f.Add([]byte{'Q', 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		require.LessOrEqual(t, len(requests(raw)), len(raw)/5)
	})
}
