package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
)

// several are letters of every kind that the filters tell apart.
func several(b *bed) {
	b.bury(exhausted(7), []byte("c-7"), []byte(`{}`))
	env := exhausted(3)
	env.Origin.Partition, env.Reason, env.Message, env.Attempts, env.Replays = 2, dlq.Panic, "panic: runtime error: index out of range [3] with length 3", 1, 2
	b.bury(env, []byte("c-3"), []byte(`{}`))
	env = exhausted(5)
	env.Origin = dlq.Coordinates{Topic: "payments", Partition: 0, Offset: 5}
	env.Reason, env.Group, env.Route, env.Message, env.Attempts = dlq.Undecodable, "audit", "archive", "invalid character 'h' looking for beginning of value", 0
	b.bury(env, nil, []byte(`hello`))
}

func TestList(t *testing.T) {
	t.Parallel()

	t.Run("ARouteWithoutLettersIsToldWithThoseThatHaveSome", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		several(b)
		r := b.ok("dlq", "ls", "--topic", "orders.dlq", "--route", "charge-orders")
		require.Contains(t, r.err, "note: orders.dlq has letters of no route charge-orders: there are archive, charge-order\n")
		require.NotContains(t, b.ok("dlq", "ls", "--topic", "orders.dlq", "--route", "archive").err, "note: ")
	})

	t.Run("AGroupWithoutLettersIsToldToo", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		several(b)
		r := b.ok("dlq", "ls", "--topic", "orders.dlq", "--group", "nosuch,billing", "--route", "archive")
		require.Contains(t, r.err, "note: orders.dlq has letters of no group nosuch: there are audit, billing\n")
		require.NotContains(t, r.err, "no route")
		require.NotContains(t, b.ok("dlq", "ls", "--topic", "orders.dlq", "--group", "audit").err, "note: ")
	})

	t.Run("TableHasTheNewestLastAndCountsByReason", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		several(b)
		b.width = 160
		r := b.ok("dlq", "ls", "--topic", "orders.dlq")
		require.Equal(t, `
LETTER  ORIGIN        FAILED                REASON       ROUTE                 TRIES  REPLAYS  KEY  ERROR
2/0     orders/2/3    2026-11-30T03:14:03Z  panic        billing/charge-order      1        2  c-3  panic: runtime error: index out of range [3] with length 3
0/0     payments/0/5  2026-11-30T03:14:05Z  undecodable  audit/archive                              invalid character 'h' looking for beginning of value
1/0     orders/1/7    2026-11-30T03:14:07Z  exhausted    billing/charge-order      3           c-7  payments: 503 Service Unavailable
3 letters: 1 exhausted, 1 panic, 1 undecodable
`, "\n"+r.out)
		require.Empty(t, r.err)
	})

	t.Run("LinesFitTheTerminal", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		env := exhausted(1)
		env.Message = strings.Repeat("ä long story ", 100)
		b.bury(env, []byte(strings.Repeat("k", 500)), nil)
		for _, b.width = range []int{140, 200} {
			out := lines(b.ok("dlq", "ls", "--topic", "orders.dlq").out)
			for _, line := range out[:len(out)-1] {
				require.LessOrEqual(t, utf8.RuneCountInString(line), b.width)
			}
		}
	})

	t.Run("WithoutATerminalNothingIsCut", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		env := exhausted(1)
		env.Message = strings.Repeat("long story ", 50)
		b.bury(env, nil, nil)
		require.Contains(t, b.ok("dlq", "ls", "--topic", "orders.dlq").out, env.Message[:len(env.Message)-1]+"\n")
	})

	t.Run("EachFilterLeavesWhatItSays", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		several(b)
		all := []string{"orders/2/3", "payments/0/5", "orders/1/7"}
		for flags, want := range map[string][]string{
			"":                               all,
			"--reason exhausted":             {"orders/1/7"},
			"--reason exhausted,panic":       {"orders/2/3", "orders/1/7"},
			"--source payments":              {"payments/0/5"},
			"--group billing":                {"orders/2/3", "orders/1/7"},
			"--group billing --reason panic": {"orders/2/3"},
			"--route archive":                {"payments/0/5"},
			"--key c-3 --key c-7":            {"orders/2/3", "orders/1/7"},
			"--id " + exhausted(7).MessageID.String(): {"orders/1/7"},
			"--at orders/2/3":                         {"orders/2/3"},
			"--at orders.dlq/1/0":                     {"orders/1/7"},
			"--since 2026-11-30T03:14:05Z":            {"payments/0/5", "orders/1/7"},
			"--until 2026-11-30T03:14:05Z":            {"orders/2/3"},
			"--until 20000d":                          nil,
			"--format headrace":                       all,
			"--format spring,connect":                 nil,
			"--limit 1":                               {"orders/1/7"},
		} {
			var got []string
			for _, line := range lines(b.ok(append([]string{"dlq", "ls", "--topic", "orders.dlq", "--json"}, strings.Fields(flags)...)...).out) {
				var l letterJSON
				require.NoError(t, json.Unmarshal([]byte(line), &l))
				got = append(got, fmt.Sprintf("%s/%d/%d", l.Source, *l.SourcePartition, *l.SourceOffset))
			}
			require.Equal(t, want, got, flags)
		}
	})

	t.Run("LimitSaysWhatItLeavesOut", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(20)
		r := b.ok("dlq", "ls", "--topic", "orders.dlq", "--limit", "3")
		require.Len(t, lines(r.out), 5)
		require.Contains(t, lines(r.out)[3], "orders/1/19")
		require.Equal(t, "20 letters: 20 exhausted; consumer group billing; the newest 3 are shown, --limit 0 shows all", lines(r.out)[4])
	})

	t.Run("NothingIsSaidOutLoud", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(2)
		r := b.ok("dlq", "ls", "--topic", "orders.dlq", "--reason", "panic")
		require.Empty(t, r.out)
		require.Equal(t, "no letter of orders.dlq matches, of 2 letters\n", r.err)
	})

	t.Run("JSONIsOneObjectALineWithStableNames", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.bury(exhausted(1), []byte("c-1\x1b[2J\u202e"), []byte("{}"))
		b.produce("orders.dlq", 0, night.Add(time.Hour), []byte{0xff, 0}, nil)
		r := b.ok("dlq", "ls", "--topic", "orders.dlq", "--json")
		require.Empty(t, r.err)
		require.Equal(t, []string{
			`{"topic":"orders.dlq","partition":1,"offset":0,"written":"2026-11-30T03:14:01Z","format":"headrace","source":"orders",` +
				`"source_partition":1,"source_offset":1,"source_timestamp":"2026-11-30T03:13:01Z","id":"` + exhausted(1).MessageID.String() + `",` +
				`"group":"billing","route":"charge-order","reason":"exhausted","class":"transient","error_type":"*downstream.StatusError",` +
				`"error":"payments: 503 Service Unavailable","fingerprint":"9a0c4f11","attempts":3,"replays":0,` +
				`"first_failed":"2026-11-30T03:13:58Z","last_failed":"2026-11-30T03:14:01Z","key":"c-1\u001b[2J\u202e","value_bytes":2}`,
			`{"topic":"orders.dlq","partition":0,"offset":0,"written":"2026-11-30T04:14:00Z","format":"unknown","source":"",` +
				`"source_partition":null,"source_offset":null,"source_timestamp":null,"id":"","group":"","route":"","reason":"","class":"",` +
				`"error_type":"","error":"","fingerprint":"","attempts":0,"replays":0,"first_failed":null,"last_failed":null,` +
				`"key":null,"key_base64":"/wA=","value_bytes":null}`,
		}, lines(r.out))
	})
}

func TestList_WrongCommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                                               "no dead letter topic",
		"--topic x":                                      "no brokers",
		"--topic x --brokers kafka://a:9092":             `"kafka://a:9092" is no host:port`,
		"--topic x --reason tired":                       `--reason "tired" is not known`,
		"--topic x --format xml":                         `--format "xml" is not known`,
		"--topic x --at orders/3":                        `"orders/3"`,
		"--topic x --since yesterday":                    `--since "yesterday" is neither an age nor a time`,
		"--topic x --since 1h --until 2h":                "--since 1h is not before --until 2h",
		"--topic x --limit -1":                           "--limit -1 is negative",
		"--topic x -n many":                              `--limit "many" is no whole number`,
		"--topic x --since 2h --until 3h --json":         "as in --since 3h --until 2h",
		"--topic x --limt 5":                             "did you mean --limit?",
		"--topic x --xyzzy":                              "unknown flag: --xyzzy",
		"--topic x --json=perhaps":                       `--json "perhaps" is no true or false`,
		"--topic x --at":                                 "write it as in --at <topic/partition/offset>",
		"orders.dlq":                                     "write --topic orders.dlq",
		"--topic x --state dead":                         "--state of this command takes no value",
		"--topic x --brokers a:1 --sasl-mechanism foo":   `mechanism "foo" is not known`,
		"--topic x --brokers a:1 --sasl-user me":         "without --sasl-mechanism",
		"--topic x --brokers a:1 --sasl-mechanism plain": "without a user",
		"--topic x --brokers a:1 --sasl-mechanism plain --sasl-user me":                               "HEADRACE_SASL_PASSWORD",
		"--topic x --brokers a:1 --sasl-mechanism plain --sasl-user me --sasl-password-file /nowhere": "/nowhere",
	} {
		r := newCLI(t).run(append([]string{"dlq", "ls"}, strings.Fields(line)...)...)
		require.Equal(t, exitUsage, r.code, line)
		require.Empty(t, r.out, line)
		require.Contains(t, r.err, want, line)
		require.Contains(t, r.err, "\n  fix: ", line)
		require.Contains(t, r.err, "see 'headrace dlq ls --help'", line)
	}
}

func TestList_Completion(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string][]string{"--reason": reasons(), "--format": formats()} {
		out := newCLI(t).ok("__complete", "dlq", "ls", flag, "").out
		for _, value := range want {
			require.Contains(t, lines(out), value)
		}
	}
}
