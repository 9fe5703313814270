package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func environment(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestSettings(t *testing.T) {
	t.Parallel()
	t.Run("DefaultsAreThoseOfTheFigures", func(t *testing.T) {
		t.Parallel()
		s, err := parse(nil, environment(nil))
		require.NoError(t, err)
		require.Equal(t, 100_000, s.records)
		require.Equal(t, 3, s.rounds)
		require.Equal(t, "results.json", s.out)
		require.True(t, s.runs("memory"))
		require.True(t, s.joins("stock"))
	})
	t.Run("EnvironmentShortensARun", func(t *testing.T) {
		t.Parallel()
		s, err := parse(nil, environment(map[string]string{"BENCH_N": "500", "BENCH_RUNS": "1", "BENCH_ONLY": "throughput, franz-rows", "BENCH_SECONDS": "2"}))
		require.NoError(t, err)
		require.Equal(t, 500, s.records)
		require.Equal(t, 1, s.rounds)
		require.Equal(t, 2*time.Second, s.load)
		require.True(t, s.runs("throughput"))
		require.False(t, s.runs("memory"))
		require.True(t, s.joins("franz-rows-500"))
		require.False(t, s.joins("franz-set-500"))
		require.False(t, s.joins("stock"))
	})
	t.Run("FlagsComeBeforeTheEnvironment", func(t *testing.T) {
		t.Parallel()
		s, err := parse([]string{"-records", "7"}, environment(map[string]string{"BENCH_N": "500"}))
		require.NoError(t, err)
		require.Equal(t, 7, s.records)
	})
	for name, vars := range map[string]map[string]string{
		"MisspeltScenarioIsRefused":  {"BENCH_ONLY": "throughputs"},
		"HalfANameIsRefused":         {"BENCH_ONLY": "franz-ro"},
		"NumberThatIsNoneIsRefused":  {"BENCH_N": "many"},
		"RunsThatAreNoneAreRefused":  {"BENCH_RUNS": "0"},
		"SecondsThatAreNoneAreToo":   {"BENCH_SECONDS": "-1"},
		"BacklogThatIsNoneIsRefused": {"BENCH_BACKLOG": "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(nil, environment(vars))
			require.Error(t, err)
		})
	}
}

func TestContenderNamesAreTheirOwn(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, c := range contenders() {
		require.False(t, known[c.name], c.name)
		known[c.name] = true
	}
}

func TestJarsAreFresh(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, now := time.Now().Add(-time.Hour), time.Now()
	write := func(name string, at time.Time) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chtimes(path, at, at))
	}
	fresh := func() bool {
		f, err := jarsAreFresh(dir)
		require.NoError(t, err)
		return f
	}
	write("pom.xml", old)
	write("a/pom.xml", old)
	write("a/src/A.java", old)
	write("b/pom.xml", old)
	write("a/target/a-1.jar", now)
	require.False(t, fresh(), "a module has none")
	write("b/target/b-1.jar", now)
	require.True(t, fresh())
	write("a/target/lib/old.jar", old.Add(-time.Hour))
	require.True(t, fresh(), "of a dependency, which has its own date")
	write("a/src/A.java", now.Add(time.Minute))
	require.False(t, fresh(), "a source is newer")
}
