package audit

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func mentions(texts []string, part string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, part) })
}

func TestSecretsAndCrashesInLogsAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := "level=INFO msg=ready\nlevel=WARN err=\"at :hunter2@host\"\npanic: boom\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.log"), []byte(text), 0o600))
	found, err := Logs(dir, Secrets{"password": "hunter2"})
	require.NoError(t, err)
	require.Equal(t, []string{"a.log:2 has a password", "a.log:3: panic: boom"}, found)
}

func TestSecretsInDisguiseAreFound(t *testing.T) {
	t.Parallel()
	secrets := Secrets{"payload": "s3cr3t-payl0ad"}
	value := []byte(`{"mark":"s3cr3t-payl0ad"}`)
	for name, text := range map[string]string{
		"AsItIs":        string(value),
		"AsBytes":       fmt.Sprintf("%d", value),
		"InHexadecimal": fmt.Sprintf("%x", value),
		"InCapitals":    fmt.Sprintf("%X", value),
		"InBase64":      base64.StdEncoding.EncodeToString(value),
		"InBase64Later": base64.StdEncoding.EncodeToString(value[1:]),
		"InBase64Last":  base64.StdEncoding.EncodeToString(value[2 : len(value)-2]),
	} {
		require.Equal(t, []string{"it has a payload"}, secrets.Seen("it", "value="+text), name)
	}
	require.Empty(t, secrets.Seen("it", "value=25 bytes"))
}

func TestAnOpenTransactionInPostgresIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx, err := w.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), `select count(*) from effects`)
	require.NoError(t, err)
	conn, err := w.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	found, err := transactions(t.Context(), conn.Conn())
	require.NoError(t, err)
	require.Condition(t, func() bool { return mentions(found, "idle in transaction") }, "%q", found)
}
