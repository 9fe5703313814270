package main

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/test/attack/load"
)

func TestWhatHasGrownIsFound(t *testing.T) {
	t.Parallel()
	before := size{Goroutines: 200, Files: 40, Sockets: 20, Sessions: 20, MiB: 60}
	require.Empty(t, before.excess(before))
	for what, now := range map[string]size{
		"600 goroutines":          {Goroutines: 600},
		"90 open files":           {Files: 90},
		"60 connections":          {Sockets: 60},
		"60 sessions in Postgres": {Sessions: 60},
	} {
		found := now.excess(before)
		require.Len(t, found, 1)
		require.Contains(t, found[0], what)
	}
}

func TestSocketsOfAProcessAreCounted(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		return // this system does not have them as files
	}
	var lc net.ListenConfig
	before := sockets(os.Getpid())
	for range 20 {
		l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
	}
	require.GreaterOrEqual(t, sockets(os.Getpid()), before+20)
}

func TestPageAddsUpSeries(t *testing.T) {
	t.Parallel()
	p := pageOf(strings.Join([]string{
		"# HELP answers by kind", "answers{answer=\"own\",route=\"a b\"} 3", "answers{answer=\"own\",route=\"c\"} 4", "answers{answer=\"fresh\"} 5", "answers_more 6", "",
	}, "\n"))
	require.InDelta(t, 7, p.sum("answers", `answer="own"`), 0)
	require.InDelta(t, 12, p.sum("answers", ""), 0)
}

func TestAClientThatWroteNothingIsFound(t *testing.T) {
	t.Parallel()
	require.Empty(t, idle(map[string]load.Written{"java": {Records: 3, Aborted: 1}}))
	require.Len(t, idle(map[string]load.Written{"java": {Records: 3}}), 1)
	require.Len(t, idle(map[string]load.Written{"java": {Aborted: 3}}), 1)
}
