package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that runs out of memory is a fault of the library, unless a record was there to do it.
func TestOnlyARecordThatAllocatesWithoutEndMayRunOutOfMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, trace string) {
		text := "fatal error: out of memory\n\ngoroutine 7 [running]:\n" + trace + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("record.log", "github.com/headrace/headrace/test/attack/member.hog()")
	write("library.log", "github.com/headrace/headrace/dedup.(*Route).Run()")
	require.True(t, hogged(dir, "record.log:1: fatal error: out of memory"))
	require.False(t, hogged(dir, "library.log:1: fatal error: out of memory"))
	require.False(t, hogged(dir, "record.log:1: panic: index out of range"))
	require.False(t, hogged(dir, "gone.log:1: fatal error: out of memory"))
}
