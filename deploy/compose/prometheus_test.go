package compose

import (
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// promtool runs Prometheus' own checker in the directory of its configuration. Where there is none the test is skipped;
// CI must have it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil && (os.Getenv("CI") == "true" || os.Getenv("HEADRACE_REQUIRE_REAL") == "1") {
		require.NoError(t, err, "promtool is required here")
	}
	if err != nil {
		t.Skip("promtool is not installed; it is in the package prometheus, of Debian as of Homebrew")
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = "prometheus"
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, string(said))
}

// ruleFile is what is read of a file of rules.
type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert       string            `yaml:"alert,omitempty"`
	Record      string            `yaml:"record,omitempty"`
	Expr        string            `yaml:"expr"`
	For         time.Duration     `yaml:"for,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file ruleFile
	readYAML(t, "prometheus/alerts.yaml", &file)
	require.Len(t, file.Groups, 1)
	return file.Groups[0].Rules
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(path))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), path)
}

func TestPrometheus(t *testing.T) {
	t.Parallel()

	t.Run("TakesItsConfiguration", func(t *testing.T) {
		t.Parallel()
		promtool(t, "check", "config", "prometheus.yaml")
	})

	t.Run("RaisesTheAlertsWhenItShould", func(t *testing.T) {
		t.Parallel()
		promtool(t, "test", "rules", "alerts_test.yaml")
	})

	t.Run("FindsItsConfigurationWhereItIsMounted", func(t *testing.T) {
		t.Parallel()
		prometheus := service(t, "prometheus")
		require.Equal(t, "/etc/prometheus/prometheus.yaml", flag(t, prometheus, "config.file"))
		require.Equal(t, filepath.Join(root(t), "deploy/compose/prometheus"), mounted(t, prometheus, "/etc/prometheus"))
		require.Equal(t, "prometheus", mounted(t, prometheus, flag(t, prometheus, "storage.tsdb.path")))
	})
}

// TestPrometheus_AsksWhereSomebodyAnswers: a target is the demo's, or on the machine that the stack runs on.
func TestPrometheus_AsksWhereSomebodyAnswers(t *testing.T) {
	t.Parallel()
	var config struct {
		Scrapes []struct {
			Job     string `yaml:"job_name"`
			Statics []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, "prometheus/prometheus.yaml", &config)
	targets := map[string]string{}
	for _, scrape := range config.Scrapes {
		require.Len(t, scrape.Statics, 1)
		require.Len(t, scrape.Statics[0].Targets, 1)
		targets[scrape.Job] = scrape.Statics[0].Targets[0]
	}
	_, port, err := net.SplitHostPort(flag(t, service(t, "demo"), "listen"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"demo": "demo:" + port, "host": "host.docker.internal:9400"}, targets)
	require.Contains(t, service(t, "prometheus").ExtraHosts, "host.docker.internal", "Linux has no such name of its own")
}

func TestAlerts_EachIsShownFiringAndSilent(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name string      `yaml:"alertname"`
				Exp  []yaml.Node `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	readYAML(t, "prometheus/alerts_test.yaml", &file)
	firing, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			firing[a.Name] = firing[a.Name] || len(a.Exp) > 0
			silent[a.Name] = silent[a.Name] || len(a.Exp) == 0
		}
	}
	for _, r := range alerts(t) {
		require.True(t, firing[r.Alert], r.Alert)
		require.True(t, silent[r.Alert], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.NotEmpty(t, r.Annotations["action"], r.Alert)
	}
}

// TestAlerts_AreThoseOfTheOperationsPage compares them with the page's table, which says the expression and for how long.
func TestAlerts_AreThoseOfTheOperationsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	section := cut(string(page), "## Alerts worth having", "\n## ")
	row := regexp.MustCompile("(?m)^\\| [^|]+ \\| `([^`]+)`(, for 5 minutes)? \\|")
	var want []string
	for _, found := range row.FindAllStringSubmatch(section, -1) {
		want = append(want, found[1]+found[2])
	}
	var got []string
	for _, r := range alerts(t) {
		if r.For == 5*time.Minute {
			r.Expr += ", for 5 minutes"
		} else {
			require.Zero(t, r.For, r.Alert)
		}
		got = append(got, r.Expr)
	}
	require.NotEmpty(t, want)
	require.ElementsMatch(t, want, got)
}

// cut is what lies between the first begin and the next end.
func cut(text, begin, end string) string {
	_, rest, _ := strings.Cut(text, begin)
	inside, _, _ := strings.Cut(rest, end)
	return inside
}

func TestAlerts_NameWhatExists(t *testing.T) {
	t.Parallel()
	for _, r := range alerts(t) {
		t.Run(r.Alert, func(t *testing.T) {
			t.Parallel()
			requireExported(t, r.Expr, slices.Collect(maps.Values(r.Annotations))...)
		})
	}
}
