package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func reported(t *testing.T, missing string, lines ...string) (string, *report) {
	t.Helper()
	var out bytes.Buffer
	r := newReport(&out)
	require.NoError(t, r.read(strings.NewReader(strings.Join(lines, "\n"))))
	r.summarise(&out, missing)
	return out.String(), r
}

func TestReport(t *testing.T) {
	t.Parallel()

	t.Run("PrintsGoTestsOwnLinesAndACount", func(t *testing.T) {
		t.Parallel()
		out, _ := reported(
			t, "",
			`{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}`,
			`{"Action":"pass","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Output":"PASS\n"}`,
			`{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}`,
			`{"Action":"pass","Package":"p"}`,
		)
		require.True(t, strings.HasPrefix(out, "ok  \tp\t0.1s\n\n"), out)
		require.True(t, strings.HasSuffix(out, "\n1 passed, 0 failed, 0 skipped\n"), out)
		require.Contains(t, out, "Nothing was left out")
	})

	t.Run("ShowsWhatAFailedTestSaid", func(t *testing.T) {
		t.Parallel()
		out, r := reported(
			t, "",
			`{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: broken\n"}`,
			`{"Action":"output","Package":"p","Test":"TestB","Output":"    quiet\n"}`,
			`{"Action":"fail","Package":"p","Test":"TestA"}`,
			`{"Action":"pass","Package":"p","Test":"TestB"}`,
			`{"Action":"fail","Package":"p"}`,
		)
		require.Contains(t, out, "a_test.go:3: broken")
		require.NotContains(t, out, "quiet")
		require.Equal(t, 1, r.failed)
	})

	t.Run("CountsAPackageThatDiedOrDidNotBuild", func(t *testing.T) {
		t.Parallel()
		out, r := reported(
			t, "",
			`{"Action":"build-output","Output":"a.go:1: syntax error\n"}`,
			`{"Action":"fail","Package":"unbuilt"}`,
			`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: test timed out\n"}`,
			`{"Action":"fail","Package":"p"}`,
		)
		require.Contains(t, out, "syntax error")
		require.Contains(t, out, "panic: test timed out")
		require.Equal(t, 2, r.failed)
	})

	t.Run("SaysHowToAddTheRealBroker", func(t *testing.T) {
		t.Parallel()
		out, r := reported(
			t, "Java 17 is not installed",
			`{"Action":"output","Package":"p","Test":"TestA","Output":"    real.go:68: no real broker: Java 17 is not installed\n"}`,
			`{"Action":"skip","Package":"p","Test":"TestA"}`,
			`{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: not today\n"}`,
			`{"Action":"skip","Package":"p","Test":"TestB"}`,
			`{"Action":"pass","Package":"p"}`,
		)
		require.Contains(t, out, "1 tests on the real Apache Kafka were not run: Java 17 is not installed")
		require.Contains(t, out, install())
		require.Contains(t, out, "skipped: p.TestB: not today")
		require.Len(t, r.skipped, 2)
	})

	t.Run("PassesOnWhatIsNotAnEvent", func(t *testing.T) {
		t.Parallel()
		out, _ := reported(t, "", "go: no such module")
		require.True(t, strings.HasPrefix(out, "go: no such module"), out)
	})
}
