package compose

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/consumer"
)

// dashboard is what is read of one.
type dashboard struct {
	UID    string  `json:"uid"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID         int         `json:"id"`
	Type       string      `json:"type"`
	Title      string      `json:"title"`
	Datasource *datasource `json:"datasource"`
	Grid       struct {
		H, W, X, Y int
	} `json:"gridPos"`
	Targets []struct {
		Expr       string      `json:"expr"`
		Legend     string      `json:"legendFormat"`
		Datasource *datasource `json:"datasource"`
	} `json:"targets"`
}

type datasource struct {
	Type string `json:"type" yaml:"type"`
	UID  string `json:"uid"  yaml:"uid"`
	Name string `json:"-"    yaml:"name"`
	URL  string `json:"-"    yaml:"url"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("grafana/dashboards/headrace.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

func provisioned(t *testing.T) datasource {
	t.Helper()
	var file struct {
		Datasources []datasource `yaml:"datasources"`
	}
	readYAML(t, "grafana/provisioning/datasources/prometheus.yaml", &file)
	require.Len(t, file.Datasources, 1)
	return file.Datasources[0]
}

func TestGrafana_AsksThePrometheusOfTheStack(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(provisioned(t).URL)
	require.NoError(t, err)
	var ports []string
	for _, p := range service(t, address.Hostname()).Ports {
		ports = append(ports, strconv.Itoa(int(p.Target)))
	}
	require.Contains(t, ports, address.Port())
	require.Contains(t, service(t, address.Hostname()).Image, "prometheus")
}

func TestGrafana_FindsItsFilesWhereTheyAreMounted(t *testing.T) {
	t.Parallel()
	grafana, here := service(t, "grafana"), filepath.Join(root(t), "deploy/compose/grafana")
	require.Equal(t, filepath.Join(here, "provisioning"), mounted(t, grafana, "/etc/grafana/provisioning"))
	var file struct {
		Providers []struct {
			Options struct {
				Path string `yaml:"path"`
			} `yaml:"options"`
		} `yaml:"providers"`
	}
	readYAML(t, "grafana/provisioning/dashboards/headrace.yaml", &file)
	require.Len(t, file.Providers, 1)
	require.Equal(t, filepath.Join(here, "dashboards"), mounted(t, grafana, file.Providers[0].Options.Path))
	require.Equal(t, file.Providers[0].Options.Path+"/headrace.json", *grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
}

// mounted is the source of what a service sees at the path.
func mounted(t *testing.T, s types.ServiceConfig, path string) string {
	t.Helper()
	for _, v := range s.Volumes {
		if v.Target == path {
			return v.Source
		}
	}
	require.Fail(t, "nothing is mounted there", "%s: %s", s.Name, path)
	return ""
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	d, source := readDashboard(t), provisioned(t)

	t.Run("ShowsWhatAnOperatorAsksFor", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "headrace", d.UID)
		var rows []string
		for _, p := range d.Panels {
			if p.Type == "row" {
				rows = append(rows, p.Title)
			}
		}
		require.Equal(t, []string{
			"Outcomes and rate", "Lag", "Attempts", "Holds, breakers and calls",
			"Inbox and group transactions", "Dead letters", "Outbox", "Parking", "Idempotency keys of a service", "Reports",
		}, rows)
	})

	t.Run("LeavesNoMetricOut", func(t *testing.T) {
		t.Parallel()
		var all strings.Builder
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				all.WriteString(target.Expr + "\n")
			}
		}
		for _, m := range consumer.Metrics() {
			require.Contains(t, all.String(), m.Name)
		}
	})

	t.Run("AsksTheDatasourceThatIsThere", func(t *testing.T) {
		t.Parallel()
		for _, p := range d.Panels {
			require.Equal(t, len(p.Targets) > 0, p.Datasource != nil, p.Title)
			for _, target := range p.Targets {
				require.Equal(t, source.UID, target.Datasource.UID, p.Title)
				require.Equal(t, source.Type, target.Datasource.Type, p.Title)
				require.Equal(t, target.Datasource, p.Datasource, p.Title)
			}
		}
	})

	t.Run("HasItsPanelsSideBySide", func(t *testing.T) {
		t.Parallel()
		seen := map[int]string{}
		for i, p := range d.Panels {
			require.NotContains(t, seen, p.ID)
			seen[p.ID] = p.Title
			require.LessOrEqual(t, p.Grid.X+p.Grid.W, 24, p.Title)
			for _, other := range d.Panels[:i] {
				apart := p.Grid.X >= other.Grid.X+other.Grid.W || other.Grid.X >= p.Grid.X+p.Grid.W ||
					p.Grid.Y >= other.Grid.Y+other.Grid.H || other.Grid.Y >= p.Grid.Y+p.Grid.H
				require.True(t, apart, "%s covers %s", p.Title, other.Title)
			}
		}
	})
}

func TestDashboard_NamesWhatExists(t *testing.T) {
	t.Parallel()
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			t.Run(p.Title, func(t *testing.T) {
				t.Parallel()
				requireExported(t, target.Expr, target.Legend)
			})
		}
	}
}

// TestDashboard_IsWrittenInPromQL lets promtool read the expressions, as rules, with Grafana's variables filled in.
func TestDashboard_IsWrittenInPromQL(t *testing.T) {
	t.Parallel()
	fill := strings.NewReplacer("$__rate_interval", "1m", "$__range", "15m")
	var rules []rule
	for _, p := range readDashboard(t).Panels {
		for i, target := range p.Targets {
			rules = append(rules, rule{Record: "panel_" + strconv.Itoa(p.ID) + "_" + strconv.Itoa(i), Expr: fill.Replace(target.Expr)})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	require.NoError(t, err)
	require.NotContains(t, string(text), "$")
	path := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	promtool(t, "check", "rules", path)
}
