package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/migrations"
)

// service charges once a key, elsewhere; while it is broken nobody knows whether it did.
type service struct {
	*cli
	url     string
	broken  atomic.Bool
	charged atomic.Int64
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{cli: newCLI(t)}
	s.env[envDSN] = pgtest.DSN(t, migrations.Up)
	keys, err := idempotency.New(pgtest.Pool(t, s.env[envDSN]), idempotency.Config{
		Principal: func(r *http.Request) string { return r.Header.Get("Tenant") }, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	server := httptest.NewServer(keys.External("charge", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if s.broken.Load() {
			http.Error(w, "no answer", http.StatusGatewayTimeout)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		s.charged.Add(1)
		_, _ = io.WriteString(w, `{"id":7,"token":"hunter2-hunter2"}`)
	}), nil))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// charge asks for it once, and gives status and body.
func (s *service) charge(key, tenant string) (status int, body string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, strings.NewReader(`{"cents":7}`))
	require.NoError(s.t, err)
	req.Header.Set(idempotency.Header, `"`+key+`"`)
	req.Header.Set("Tenant", tenant)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, string(text)
}

// breakFor leaves keys unknown.
func (s *service) breakFor(tenant string, keys ...string) {
	s.t.Helper()
	s.broken.Store(true)
	for _, key := range keys {
		status, _ := s.charge(key, tenant)
		require.Equal(s.t, http.StatusGatewayTimeout, status)
	}
	s.broken.Store(false)
}

// What nobody knows the outcome of is found, and settled as an operator says.
func TestIdempotency(t *testing.T) {
	t.Parallel()
	s := newService(t)
	require.Equal(t, "no key is unknown\n", s.ok("idempotency", "ls").err)
	s.breakFor("acme", "k-1", "k-2", "k-3")
	s.breakFor("other", "k-3")
	require.Equal(t, strings.Join([]string{
		"KEY  ROUTE   METHOD  PRINCIPAL  STARTED  UNKNOWN SINCE  NOTE",
		"k-1  charge  POST    acme       …        …              it was answered 504",
		"k-2  charge  POST    acme       …        …              it was answered 504",
		"k-3  charge  POST    acme       …        …              it was answered 504",
		"k-3  charge  POST    other      …        …              it was answered 504",
		"4 keys",
	}, "\n"), squeezed(s.ok("idempotency", "ls").out))
	require.Len(t, lines(s.ok("idempotency", "ls", "--principal", "other", "--json").out), 1)
	require.Contains(t, s.ok("idempotency", "ls", "--limit", "1").out, "4 keys; the first 1 are shown")

	r := s.run("idempotency", "resolve", "k-1", "--not-done")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "there is no terminal to ask on")
	require.Contains(t, s.ok("idempotency", "resolve", "k-1", "--not-done", "--dry-run").out, "would be not done: the next request runs; --dry-run wrote nothing")
	status, _ := s.charge("k-1", "acme")
	require.Equal(t, http.StatusConflict, status)

	t.Log("it was not done: the next request runs, once")
	s.ok("idempotency", "resolve", "k-1", "--not-done", "--yes")
	for range 2 {
		status, _ = s.charge("k-1", "acme")
		require.Equal(t, http.StatusCreated, status)
	}
	require.EqualValues(t, 1, s.charged.Load())

	t.Log("it was done: its requests are answered what the operator says")
	file := filepath.Join(t.TempDir(), "answer.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"id":42}`), 0o600))
	s.ok("idempotency", "resolve", "k-2", "--done", "--status", "201", "--body", "@"+file, "--yes")
	status, body := s.charge("k-2", "acme")
	require.Equal(t, http.StatusCreated, status)
	require.JSONEq(t, `{"id":42}`, body)
	require.EqualValues(t, 1, s.charged.Load())

	t.Log("what is settled stays, and a name that two have is not guessed")
	r = s.run("idempotency", "resolve", "k-2", "--not-done", "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "nothing was changed: the key is finished")
	r = s.run("idempotency", "resolve", "k-3", "--not-done", "--yes")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.err, "more than one key has this name")
	s.ok("idempotency", "resolve", "k-3", "--principal", "other", "--not-done", "--yes")
	require.Contains(t, s.ok("idempotency", "ls").out, "1 key\n")

	out := s.ok("idempotency", "show", "k-1").out
	for _, line := range []string{"key           k-1\n", "state         finished\n", "answer        201\n", "  Content-Type: application/json\n", "body (34 bytes)\n"} {
		require.Contains(t, out, line)
	}
	require.NotContains(t, out, "hunter2")
	require.Contains(t, s.ok("idempotency", "show", "k-3").out, "note          it was answered 504\n")
	var j keyJSON
	require.NoError(t, json.Unmarshal([]byte(s.ok("idempotency", "show", "k-3", "--json").out), &j))
	require.Equal(t, []string{"unknown", "acme"}, []string{j.State, j.Principal})
}

// squeezed is a table whose times are one character, and the columns as wide as that leaves them.
func squeezed(out string) string {
	all := lines(varying.ReplaceAllString(out, "…"))
	for i, line := range all {
		if strings.Contains(line, "…") {
			all[i] = strings.ReplaceAll(strings.Replace(line, "…  …", "…        …", 1), "…  it", "…              it")
		}
		all[i] = strings.ReplaceAll(strings.ReplaceAll(all[i], "STARTED               ", "STARTED  "), "UNKNOWN SINCE         ", "UNKNOWN SINCE  ")
	}
	return strings.Join(all, "\n")
}

func TestIdempotency_WrongUseIsTold(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for args, want := range map[string]string{
		"resolve k --yes":                        "say --done or --not-done",
		"resolve k --done --not-done --yes":      "say --done or --not-done",
		"resolve k --not-done --status 201":      "--not-done has no answer",
		"resolve k --done --body @/no/file":      "--body",
		"resolve":                                "takes one key, not 0",
		"show a b":                               "takes one key, not 2",
		"ls --table Orders":                      "is no name",
		"ls --limit -1":                          "is negative",
		"resolve k --done --status 201 --body= ": "--body is empty",
	} {
		r := s.run(append([]string{"idempotency"}, strings.Fields(args)...)...)
		require.Equal(t, exitUsage, r.code, args)
		require.Contains(t, r.err, want, args)
	}
	r := s.run("idempotency", "show", "nobody")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "there is no such key")
	r = s.run("idempotency", "ls", "--table", "shop.keys")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "fix: check --table")
	s.breakFor("acme", "k")
	for status, want := range map[string]string{"503": `an answer 503 says "not now"`, "199": "between 200 and 599, not 199"} {
		r = s.run("idempotency", "resolve", "k", "--done", "--status", status, "--yes")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, want)
		require.Contains(t, r.err, "fix: give the one that its requests are to be answered")
	}
}

// A key was cut at 200 bytes, and the rest of it was nowhere to be found.
func TestIdempotency_WhatListPrintsShowTakes(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.breakFor("acme", strings.Repeat("k", 250), `back\\slash`)
	for _, line := range lines(s.ok("idempotency", "ls").out)[1:3] {
		key, _, _ := strings.Cut(line, " ")
		require.Contains(t, s.ok("idempotency", "show", key).out, "state         unknown\n", key)
	}
}

func TestIdempotency_WhatAClientWroteIsEscaped(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.breakFor("evil\u202e\u200bcorp", "k")
	s.terminal = true
	for _, args := range []string{"ls", "ls --json", "show k", "show k --json", "resolve k --not-done --dry-run"} {
		r := s.ok(append([]string{"idempotency"}, strings.Fields(args)...)...)
		for _, c := range r.out + r.err {
			require.True(t, c == '\n' || unicode.IsPrint(c), "%s: %q in %q", args, c, r.out)
		}
	}
}
