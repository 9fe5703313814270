package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
	"github.com/headrace/headrace/record"
)

func TestReplay(t *testing.T) {
	t.Parallel()

	t.Run("SendsKeyValueHeadersAndEnvelope", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		header := record.Header{Key: "trace-id", Value: []byte("4bf9")}
		place := b.bury(exhausted(7), []byte("c-7"), []byte(`{}`), header)
		b.bury(exhausted(8), []byte("c-8"), []byte(`{}`))
		r := b.ok("dlq", "replay", "--topic", "orders.dlq", place)
		require.Equal(t, `
matched  1
sent     1  1 to orders.billing.replay
skipped  0
failed   0
`, "\n"+r.out)
		require.Empty(t, r.err)

		sent := b.replayed()
		require.Len(t, sent, 1)
		require.Equal(t, "c-7", string(sent[0].Key))
		require.Equal(t, "{}", string(sent[0].Value))
		var hs []record.Header
		for _, h := range sent[0].Headers {
			hs = append(hs, record.Header{Key: h.Key, Value: h.Value})
		}
		env, original, ok := dlq.Decode(hs)
		require.True(t, ok)
		require.Equal(t, []record.Header{header}, original)
		want := exhausted(7)
		want.Replays = 1
		require.Equal(t, want, env)
	})

	t.Run("DryRunListsWhatItWouldSendAndSendsNothing", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(2)
		conflict := exhausted(2)
		conflict.Reason = dlq.IDConflict
		b.bury(conflict, nil, nil)
		r := b.ok("dlq", "replay", "--topic", "orders.dlq", "--dry-run")
		require.Equal(t, `
send  orders.dlq/1/0 (orders/1/0)  exhausted  to orders.billing.replay
send  orders.dlq/1/1 (orders/1/1)  exhausted  to orders.billing.replay
skip  orders.dlq/1/2 (orders/1/2)  id_conflict  wants --new-id

matched     3
would send  2  2 to orders.billing.replay
skipped     1  1 id_conflict
failed      0
`, "\n"+r.out)
		require.Empty(t, b.replayed())
	})

	t.Run("FiltersAreThoseOfLs", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(3)
		panicked := exhausted(3)
		panicked.Reason = dlq.Panic
		b.bury(panicked, []byte("c-3"), nil)
		r := b.ok("dlq", "replay", "--topic", "orders.dlq", "--reason", "panic", "--yes")
		require.Contains(t, r.out, "matched  1\n")
		require.Len(t, b.replayed(), 1)
		require.Equal(t, "c-3", string(b.replayed()[0].Key))
	})

	t.Run("ManyLettersWantAYes", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(3)

		r := b.run("dlq", "replay", "--topic", "orders.dlq", "--reason", "exhausted")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "add --yes")

		b.terminal = true
		for _, b.answer = range []string{"", "\n", "n\n", "yikes\n"} {
			r = b.run("dlq", "replay", "--topic", "orders.dlq")
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.err, "Replay 3 letters of orders.dlq (3 exhausted)? [y/N]")
			require.Contains(t, r.err, "nothing was replayed")
		}
		require.Empty(t, b.replayed())
		b.answer = "Y\n"
		b.ok("dlq", "replay", "--topic", "orders.dlq")
		require.Len(t, b.replayed(), 3)
	})

	t.Run("ASelectionOfOneThatIsTwoWantsAYes", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		env := exhausted(1)
		b.bury(env, nil, nil)
		env.Route = "post-order-to-ledger" // the same record, dead for two routes
		b.bury(env, nil, nil)
		r := b.run("dlq", "replay", "--topic", "orders.dlq", "--at", "orders/1/1")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "2 letters match (2 exhausted)")
		require.Empty(t, b.replayed())
		b.ok("dlq", "replay", "--topic", "orders.dlq", "--at", "orders/1/1", "--route", "charge-order")
		require.Len(t, b.replayed(), 1)
	})

	t.Run("NothingThatMatchesIsSaid", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(2)
		r := b.ok("dlq", "replay", "--topic", "orders.dlq", "1/9")
		require.Empty(t, r.out)
		require.Equal(t, "no letter of orders.dlq matches, of 2 letters\n", r.err)
	})

	t.Run("AMissingReplayTopicIsNamedAndCreatedOnRequest", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		env := exhausted(1)
		env.Group = "audit"
		place := b.bury(env, nil, nil)
		r := b.run("dlq", "replay", "--topic", "orders.dlq", place)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, `replay topic "orders.audit.replay" does not exist`)
		require.Contains(t, r.err, "add --create-topic")
		r = b.ok("dlq", "replay", "--topic", "orders.dlq", "--create-topic", place)
		require.Contains(t, r.out, "1 to orders.audit.replay")
		require.Len(t, kafkatest.ReadAll(t, b.brokers, "orders.audit.replay"), 1)
	})

	t.Run("TooOftenIsSkippedWithWhatToDo", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		env := exhausted(1)
		env.Replays = 10
		place := b.bury(env, nil, nil)
		r := b.ok("dlq", "replay", "--topic", "orders.dlq", place)
		require.Contains(t, r.out, "skipped  1  1 replayed_too_often")
		require.Contains(t, r.err, "1 letter replayed 10 times or more already")
		require.Empty(t, b.replayed())
		b.ok("dlq", "replay", "--topic", "orders.dlq", "--max-replays", "11", place)
		require.Len(t, b.replayed(), 1)
	})

	t.Run("LettersOfOthersGoWhereTheyAreSentTo", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		kafkatest.CreateTopic(t, b.brokers, "poison", 1)
		b.produce("poison", 0, night, []byte("k"), []byte("v"),
			record.Header{Key: "topic_poisoned", Value: []byte("orders")}, record.Header{Key: "reason_poisoned", Value: []byte("boom")},
			record.Header{Key: "handler_poisoned", Value: []byte("h")}, record.Header{Key: "subscriber_poisoned", Value: []byte("s")})
		require.Contains(t, b.ok("dlq", "ls", "--topic", "poison").out, "[watermill]")
		r := b.run("dlq", "replay", "--topic", "poison", "--yes")
		require.Equal(t, exitFailed, r.code)
		require.Equal(t, "failed  1 letter without a consumer group: give --as-group, --as-route (poison/0/0)\n", r.err)
		b.ok("dlq", "replay", "--topic", "poison", "--yes", "--as-group", "billing", "--as-route", "charge-order")
		require.Len(t, b.replayed(), 1)
	})
}

// Case 46: one letter that the replay topic does not take is told, and 99 are sent.
func TestReplay_OneUnsendableLetterOfAHundredLeavesTheOthersSent(t *testing.T) {
	t.Parallel()
	brokers := kafkatest.Fake(t).ListenAddrs()
	kafkatest.CreateTopic(t, brokers, "narrow", 1)
	kafkatest.CreateTopic(t, brokers, "narrow.billing.replay", 1, "max.message.bytes", "20000")
	b := newBedOn(t, brokers, "orders.dlq")
	noise := make([]byte, 50_000)
	_, _ = rand.Read(noise)
	for i := range 100 {
		env, value := exhausted(i), []byte("{}")
		env.Origin.Topic, env.Origin.Partition = "narrow", 0
		if i == 42 {
			value = noise
		}
		b.bury(env, nil, value)
	}
	r := b.run("dlq", "replay", "--topic", "orders.dlq", "--yes")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.out, "matched  100\nsent      99  99 to narrow.billing.replay\nskipped    0\nfailed     1\n")
	require.Regexp(t, `^failed  orders\.dlq/0/42 \(narrow/0/42\): .*MESSAGE_TOO_LARGE`, r.err)
	require.Len(t, lines(r.err), 2, "and that repeating it is harmless")
	require.Len(t, kafkatest.ReadAll(t, brokers, "narrow.billing.replay"), 99)
}

// Case 45: what dies while the operator thinks, or while the replay runs, is not part of it.
func TestReplay_EndsAlthoughNewLettersKeepComing(t *testing.T) {
	t.Parallel()

	t.Run("WhileItRuns", func(t *testing.T) {
		t.Parallel()
		fake := kafkatest.Fake(t)
		b := newBedOn(t, fake.ListenAddrs(), "orders", "orders.dlq", "orders.billing.replay")
		b.buryMany(600) // more than a batch: it sends before it has read them all
		var begun atomic.Bool
		fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			fake.KeepControl()
			if begun.CompareAndSwap(false, true) {
				fake.SleepControl(func() {
					for i := range 50 {
						b.bury(exhausted(1000+i), nil, nil)
					}
				})
			}
			return nil, nil, false
		})
		r := b.ok("dlq", "replay", "--topic", "orders.dlq", "--yes")
		require.Contains(t, r.out, "matched  600\n")
		require.Len(t, kafkatest.ReadAll(t, b.brokers, "orders.dlq"), 650)
		require.Len(t, b.replayed(), 600)
	})

	t.Run("WhileItIsConfirmed", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(3)
		b.terminal = true
		b.typed = readerFunc(func(p []byte) (int, error) {
			b.bury(exhausted(99), nil, nil)
			return copy(p, "y\n"), io.EOF
		})
		r := b.ok("dlq", "replay", "--topic", "orders.dlq")
		require.Contains(t, r.out, "matched  3\n")
		require.Len(t, b.replayed(), 3)
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A signal ends a replay with what was sent, and says that the rest may be sent by the same command.
func TestReplay_StoppedBySignalTellsWhatWasSent(t *testing.T) {
	t.Parallel()

	t.Run("WhileSending", func(t *testing.T) {
		t.Parallel()
		fake := kafkatest.Fake(t)
		b := newBedOn(t, fake.ListenAddrs(), "orders", "orders.dlq", "orders.billing.replay")
		b.buryMany(1200)
		ctx, stop := context.WithCancelCause(t.Context())
		requests := 0
		fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			fake.KeepControl()
			if requests++; requests == 1 {
				stop(errors.New("interrupt signal received"))
			}
			return nil, nil, false
		})
		r := b.runUntil(ctx, "dlq", "replay", "--topic", "orders.dlq", "--yes")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "stopped: interrupt signal received. Run the same command again")
		sent := len(b.replayed())
		require.Positive(t, sent)
		require.Less(t, sent, 1200)
		require.Contains(t, r.out, fmt.Sprintf("%d to orders.billing.replay", sent))

		b.ok("dlq", "replay", "--topic", "orders.dlq", "--yes")
		require.Len(t, b.replayed(), sent+1200)
	})

	t.Run("WhileAsked", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.buryMany(2)
		b.terminal = true
		ctx, stop := context.WithCancelCause(t.Context())
		in, hold := io.Pipe()
		t.Cleanup(func() { _ = hold.Close() })
		b.typed = readerFunc(func(p []byte) (int, error) {
			stop(errors.New("interrupt signal received"))
			return in.Read(p)
		})
		r := b.runUntil(ctx, "dlq", "replay", "--topic", "orders.dlq")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "nothing was replayed: interrupt signal received")
		require.Empty(t, b.replayed())
	})
}

func TestReplay_ProgressIsDrawnOnATerminalAndTakenAway(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.buryMany(3)
	b.terminal = true
	r := b.ok("dlq", "replay", "--topic", "orders.dlq", "--yes")
	const harmless = "a record that had its effect before settles as a duplicate, without another; --state dead leaves such out\n"
	require.Equal(t, "1 sent, 0 skipped, 0 failed\r\x1b[K"+harmless, r.err)
	b.terminal = false
	require.Equal(t, harmless, b.ok("dlq", "replay", "--topic", "orders.dlq", "--yes").err)
}

func TestReplay_WrongCommandLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                                "no dead letter topic",
		"--topic x --max-replays 0 --yes": "--max-replays 0 is below 1",
		"--topic x --brokers a:1":         "replay wants a yes",
		"--topic x --brokers a:1 1/2 3/4": `unexpected argument "3/4"`,
		"--topic x --brokers a:1 --at 7":  `"7"`,
		"--topic x --brokers a:1 --key a": "replay wants a yes",
		"--topic x --state ded --yes":     `--state "ded" is not known`,
		"--topic x --max-replays x":       `--max-replays "x" is no whole number`,
	} {
		r := newCLI(t).run(append([]string{"dlq", "replay"}, strings.Fields(line)...)...)
		require.Equal(t, exitUsage, r.code, line)
		require.Contains(t, r.err, want, line)
		require.Contains(t, r.err, "\n  fix: ", line)
	}
}
