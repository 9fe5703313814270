package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// kind is one way in which a service goes away: a toxic of Toxiproxy, in the way of its answers, so that what is asked is
// carried out and nobody hears of it; or, without one, the proxy itself.
type kind struct {
	name       string
	toxic      string           // "" refuses connections
	attributes map[string]int64 // times in milliseconds
	loses      bool             // the service closes connections instead of answering, once it has charged
}

// deadline is a call's, in milliseconds.
const deadline = int64(callTimeout / time.Millisecond)

var kinds = []kind{
	{name: "timeout", toxic: "timeout", attributes: map[string]int64{"timeout": 0}}, // no answer, ever
	{name: "reset_peer", toxic: "reset_peer", attributes: map[string]int64{"timeout": 0}},
	{name: "slow_close", toxic: "slow_close", attributes: map[string]int64{"delay": 2 * deadline}, loses: true},
	{name: "bandwidth", toxic: "bandwidth", attributes: map[string]int64{"rate": 0}},
	{name: "latency", toxic: "latency", attributes: map[string]int64{"latency": 2 * deadline, "jitter": deadline / 2}},
	{name: "down"},
}

func kindNames() string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	return strings.Join(names, ",")
}

func kindsOf(names []string) ([]kind, error) {
	var of []kind
	for _, name := range names {
		i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-kinds: %q is none of %s", name, kindNames())
		}
		of = append(of, kinds[i])
	}
	return of, nil
}
