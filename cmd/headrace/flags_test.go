package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTyped_AShellReadsWhatWasGiven(t *testing.T) {
	t.Parallel()
	cmd := newDLQ(process()).Commands()[0]
	fs := cmd.Flags()
	require.NoError(t, fs.Parse([]string{"--topic", "it's", "--group", `"a,b",c d`, "--key", "x y", "--key", "", "--tls", "--brokers", "a:1,b:2"}))
	require.Equal(t, ` --brokers a:1,b:2 --tls --topic 'it'\''s' --group '"a,b",c d' --key 'x y' --key ''`, typed(fs, append([]string{"brokers", "tls", "topic"}, filterNames...)))
}
