package compose

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/embedded"
)

// load reads compose.yaml as docker compose does, which refuses unknown keys, undefined volumes and networks, and
// dependencies on services that are not there.
func load(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"compose.yaml"})
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	return project
}

func service(t *testing.T, name string) types.ServiceConfig {
	t.Helper()
	s, err := load(t).GetService(name)
	require.NoError(t, err)
	return s
}

// eachService runs the check for every service of the file.
func eachService(t *testing.T, check func(t *testing.T, s types.ServiceConfig)) {
	t.Helper()
	services := load(t).Services
	require.Len(t, services, 6)
	for name, s := range services {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, s)
		})
	}
}

func TestEveryImageIsPinnedToAVersion(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s types.ServiceConfig) {
		t.Helper()
		if s.Build == nil {
			requirePinned(t, s.Image)
			return
		}
		require.Empty(t, s.Image)
	})
}

// requirePinned wants a tag with at least two numbers in it.
func requirePinned(t *testing.T, image string) {
	t.Helper()
	require.Regexp(t, `^[a-z0-9./-]+:v?\d+\.\d+[a-z0-9.-]*$`, image)
}

func TestEveryServiceSaysWhenItIsHealthy(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s types.ServiceConfig) {
		t.Helper()
		h := s.HealthCheck
		require.NotNil(t, h)
		require.False(t, h.Disable)
		require.Greater(t, len(h.Test), 1)
		require.Contains(t, []string{"CMD", "CMD-SHELL"}, h.Test[0])
		require.NotNil(t, h.Interval)
		require.NotNil(t, h.StartPeriod)
		require.Less(t, *h.Timeout, *h.Interval, "one check at a time")
	})
}

func TestNothingStartsBeforeWhatItNeedsIsHealthy(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s types.ServiceConfig) {
		t.Helper()
		for name, dependency := range s.DependsOn {
			require.Equal(t, types.ServiceConditionHealthy, dependency.Condition, name)
			require.True(t, dependency.Required, name)
		}
	})
	needs := func(name string) []string { return slices.Sorted(slices.Values(service(t, name).GetDependencies())) }
	require.Equal(t, []string{"kafka", "postgres"}, needs("demo"))
	require.Equal(t, []string{"prometheus"}, needs("grafana"))
}

func TestPortsAreOpenToThisMachineOnly(t *testing.T) {
	t.Parallel()
	taken := map[string]string{}
	for name, s := range load(t).Services {
		require.Empty(t, s.NetworkMode, name)
		for _, p := range s.Ports {
			require.Equal(t, "127.0.0.1", p.HostIP, "%s: %s", name, p.Published)
			require.Equal(t, p.Published, strconv.Itoa(int(p.Target)), "%s: one number to remember", name)
			require.NotContains(t, taken, p.Published)
			taken[p.Published] = name
		}
	}
	require.Equal(t, "kafka", taken["9092"], "the documented address")
	require.Equal(t, "postgres", taken["5432"], "the documented address")
}

func TestVolumesAndMountedFilesAreThere(t *testing.T) {
	t.Parallel()
	project := load(t)
	used := map[string]bool{}
	for name, s := range project.Services {
		for _, v := range s.Volumes {
			switch v.Type {
			case types.VolumeTypeBind:
				require.True(t, v.ReadOnly, "%s: %s", name, v.Source)
				_, err := os.Stat(v.Source)
				require.NoError(t, err, "%s: an engine would make a directory of it", name)
			default:
				require.Equal(t, types.VolumeTypeVolume, v.Type)
				require.Contains(t, project.Volumes, v.Source)
				require.False(t, used[v.Source], "%s is shared", v.Source)
				used[v.Source] = true
			}
		}
	}
	require.Len(t, project.Volumes, len(used), "one that nobody uses")
}

func TestThereIsNoSecretButTheKnownOne(t *testing.T) {
	t.Parallel()
	project := load(t)
	require.Empty(t, project.Secrets)
	found := 0
	for name, s := range project.Services {
		for variable, value := range s.Environment {
			require.NotNil(t, value, "%s: %s comes from the shell", name, variable)
			if strings.Contains(variable, "PASSWORD") || strings.Contains(variable, "SECRET") {
				require.Equal(t, "headrace", *value, "%s: %s", name, variable)
				found++
			}
		}
	}
	require.Equal(t, 2, found)
}

func TestEveryServiceHasAMemoryLimit(t *testing.T) {
	t.Parallel()
	var sum types.UnitBytes
	for name, s := range load(t).Services {
		require.Positive(t, s.MemLimit, name)
		sum += s.MemLimit
	}
	require.LessOrEqual(t, sum, types.UnitBytes(4<<30), "all of them on a laptop")
}

// TestVersionsAreWhatTheTestsRunOn: what is tested here says nothing about another major version.
func TestVersionsAreWhatTheTestsRunOn(t *testing.T) {
	t.Parallel()

	t.Run("Kafka", func(t *testing.T) {
		t.Parallel()
		script, err := os.ReadFile("../../test/kafka/kafka.sh")
		require.NoError(t, err)
		_, version, _ := strings.Cut(service(t, "kafka").Image, ":")
		require.Contains(t, string(script), "version=${KAFKA_VERSION:-"+version+"}")
	})

	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		major, _, _ := strings.Cut(string(embedded.Version), ".")
		require.True(t, strings.HasPrefix(service(t, "postgres").Image, "postgres:"+major+"."))
	})
}

// TestDemo: its command line is one that it takes, and leads to the others.
func TestDemo(t *testing.T) {
	t.Parallel()
	demo := service(t, "demo")
	require.Equal(t, "kafka:19092", flag(t, demo, "brokers"))
	dsn := flag(t, demo, "dsn")
	db := service(t, "postgres").Environment
	require.Equal(t, fmt.Sprintf("postgres://%s:%s@postgres:5432/%s?sslmode=disable",
		*db["POSTGRES_USER"], *db["POSTGRES_PASSWORD"], *db["POSTGRES_DB"]), dsn)
	_, port, err := net.SplitHostPort(flag(t, demo, "listen"))
	require.NoError(t, err)
	require.Contains(t, demo.HealthCheck.Test[len(demo.HealthCheck.Test)-1], "http://127.0.0.1:"+port+"/livez")

	source, err := os.ReadFile("../../cmd/demo-consumer/settings.go")
	require.NoError(t, err)
	for _, arg := range demo.Command {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		require.Contains(t, string(source), `"`+name+`"`, arg)
	}
}

// TestTheDocumentedAddressesAreThis: the demo's help and its package comment name the stack's addresses.
func TestTheDocumentedAddressesAreThis(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"../../cmd/demo-consumer/about.go", "../../cmd/demo-consumer/main.go", "../../docs/local.md", "compose.yaml"} {
		text, err := os.ReadFile(filepath.FromSlash(page))
		require.NoError(t, err)
		require.Contains(t, string(text), "localhost:9092", page)
		require.Contains(t, string(text), "postgres://headrace:headrace@localhost:5432/headrace?sslmode=disable", page)
	}
}

// flag is the value of a flag in a service's command.
func flag(t *testing.T, s types.ServiceConfig, name string) string {
	t.Helper()
	for _, arg := range s.Command {
		if value, is := strings.CutPrefix(arg, "--"+name+"="); is {
			return value
		}
	}
	require.Fail(t, "no flag", "%s: --%s", s.Name, name)
	return ""
}
