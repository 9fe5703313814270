package compose

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// proxy is an entry of Toxiproxy's configuration.
type proxy struct {
	Name     string `json:"name"`
	Listen   string `json:"listen"`
	Upstream string `json:"upstream"`
	Enabled  bool   `json:"enabled"`
}

func readProxies(t *testing.T) []proxy {
	t.Helper()
	text, err := os.ReadFile("toxiproxy/proxies.json")
	require.NoError(t, err)
	var all []proxy
	require.NoError(t, json.Unmarshal(text, &all))
	return all
}

func TestToxiproxy_LiesBetweenAPublishedPortAndAService(t *testing.T) {
	t.Parallel()
	s := service(t, "toxiproxy")
	path, is := strings.CutPrefix(s.Command[1], "-config=")
	require.True(t, is)
	require.True(t, strings.HasSuffix(mounted(t, s, path), "deploy/compose/toxiproxy/proxies.json"))
	require.Equal(t, "-host=0.0.0.0", s.Command[0], "else nobody outside of the container can cut anything off")

	published := map[string]bool{}
	for _, p := range s.Ports {
		published[strconv.Itoa(int(p.Target))] = true
	}
	upstreams := map[string]string{}
	for _, p := range readProxies(t) {
		require.True(t, p.Enabled, p.Name)
		host, port, err := net.SplitHostPort(p.Listen)
		require.NoError(t, err)
		require.Equal(t, "0.0.0.0", host, p.Name)
		require.True(t, published[port], p.Name)
		upstreams[p.Name] = p.Upstream
	}
	require.Equal(t, map[string]string{
		"kafka":    "kafka" + parsed(*service(t, "kafka").Environment["KAFKA_LISTENERS"])["PROXIED"],
		"postgres": "postgres:" + strconv.Itoa(int(service(t, "postgres").Ports[0].Target)),
		"payments": "host.docker.internal:8080",
	}, upstreams)
	require.Contains(t, s.ExtraHosts, "host.docker.internal", "Linux has no such name of its own")
}

// proxies are the stack's, in a Toxiproxy of this process.
type proxies struct {
	server *toxiproxy.ApiServer
	api    *httptest.Server
}

// startToxiproxy starts the server of the image with proxies.json, each address of which is replaced by the one given
// for it; those without get a free port to listen on.
func startToxiproxy(t *testing.T, addresses map[string]string) *proxies {
	t.Helper()
	all := readProxies(t)
	for i, p := range all {
		all[i].Listen, all[i].Upstream = "127.0.0.1:0", p.Upstream
		if to, is := addresses[p.Listen]; is {
			all[i].Listen = to
		}
		if to, is := addresses[p.Upstream]; is {
			all[i].Upstream = to
		}
	}
	config, err := json.Marshal(all)
	require.NoError(t, err)
	s := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	t.Cleanup(func() { require.NoError(t, s.Collection.Clear()) })
	_, err = s.Collection.PopulateJson(s, bytes.NewReader(config))
	require.NoError(t, err)
	api := httptest.NewServer(s.Routes())
	t.Cleanup(api.Close)
	return &proxies{server: s, api: api}
}

// listen is where a proxy listens.
func (p *proxies) listen(t *testing.T, name string) string {
	t.Helper()
	found, err := p.server.Collection.Get(name)
	require.NoError(t, err)
	return found.Listen
}

func (p *proxies) enable(t *testing.T, name string, enabled bool) {
	t.Helper()
	p.request(t, http.MethodPatch, "/proxies/"+name, `{"enabled": `+strconv.FormatBool(enabled)+`}`)
}

func (p *proxies) request(t *testing.T, method, path, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.api.URL+path, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := p.api.Client().Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Less(t, resp.StatusCode, 300, "%s %s: %s", method, path, body)
}

// TestToxiproxy_DoesWhatThePageSays sends the requests of docs/local.md.
func TestToxiproxy_DoesWhatThePageSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/local.md")
	require.NoError(t, err)
	p := startToxiproxy(t, nil)
	curl := regexp.MustCompile(`(?m)^curl (?:-X ([A-Z]+) )?localhost:8474(\S+) *(?:-d '([^']*)')?`)
	commands := curl.FindAllStringSubmatch(string(page), -1)
	require.Len(t, commands, strings.Count(string(page), "\ncurl "))
	refused := map[string]bool{}
	for _, c := range commands {
		method := c[1]
		if method == "" {
			method = http.MethodPost // curl's, with -d
		}
		p.request(t, method, c[2], c[3])
		for _, proxy := range p.server.Collection.Proxies() {
			refused[proxy.Name] = refused[proxy.Name] || !proxy.Enabled
		}
	}
	require.Equal(t, map[string]bool{"kafka": true, "postgres": true, "payments": true}, refused)
	require.Contains(t, commands[len(commands)-1][2], "reset")
	for _, proxy := range p.server.Collection.Proxies() {
		require.True(t, proxy.Enabled, proxy.Name)
		require.Empty(t, proxy.Toxics.GetToxicArray(), proxy.Name)
	}
}
