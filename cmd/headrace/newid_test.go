package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/kafkatest"
)

// conflicting are two letters with an id of another record, and one that is only dead.
func conflicting(b *bed) {
	for i := range 2 {
		env := exhausted(i)
		env.Reason, env.Message = dlq.IDConflict, "another record has this id"
		b.bury(env, []byte("c"), []byte(`{}`))
	}
	b.bury(exhausted(2), []byte("c"), []byte(`{}`))
}

// printed are the commands that stand in lines of their own.
func printed(text string) (commands []string) {
	for line := range strings.Lines(text) {
		if command, ok := strings.CutPrefix(line, "  headrace "); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}

// A hint to replay with --new-id, followed on the demo, charged 19 orders twice without a word of it.
func TestReplay_NewIDSaysThatItIsASecondEffectWhereverItIsNamed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	conflicting(b)
	delete(b.env, envBrokers) // what the user typed must be in the hint
	brokers := strings.Join(b.brokers, ",")
	r := b.ok("dlq", "replay", "-b", brokers, "--topic", "orders.dlq", "--group", "billing", "--source", "orders", "--yes")
	require.Equal(t, `2 letters with the id of another record that was there first and counts; see with
  headrace dlq ls --brokers `+brokers+` --topic orders.dlq --reason id_conflict --source orders --group billing
if a second effect is meant beside the one that counts (a second charge, a second posting), replay with
  headrace dlq replay --brokers `+brokers+` --topic orders.dlq --reason id_conflict --new-id --source orders --group billing --yes
`, r.err)
	require.Len(t, b.replayed(), 1)

	commands := printed(r.err)
	require.Len(t, commands, 2)
	require.Contains(t, b.ok(strings.Fields(commands[0])...).out, "2 letters: 2 id_conflict")
	r = b.ok(strings.Fields(commands[1])...)
	require.Len(t, b.replayed(), 3)
	require.Contains(t, r.err, "2 letters under a new id: each runs as a record of its own, with a second effect beside the one that counts (a second charge, a second posting)\n")

	b.env[envBrokers], b.terminal, b.answer = brokers, true, "n\n"
	r = b.run("dlq", "replay", "--topic", "orders.dlq", "--new-id")
	require.Equal(t, exitFailed, r.code)
	require.True(t, strings.HasPrefix(r.err, "2 letters with --new-id: each runs as a record of its own, with a second effect beside the one that counts (a second charge, a second posting)\n"+
		"Replay 3 letters of orders.dlq (2 id_conflict, 1 exhausted)? [y/N] "), r.err)
	require.Contains(t, strings.Join(strings.Fields(b.ok("dlq", "replay", "--help").out), " "), "--new-id replay id_conflict letters too, as records of their own: "+beside)
	require.Contains(t, b.ok("dlq", "show", "--topic", "orders.dlq", "1/0").out, beside)
	require.Contains(t, operationsPage(t), "a second effect beside the one that counts")
}

func TestReplay_TheNewIDHintOfASingleLetterNamesIt(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	conflicting(b)
	r := b.ok("dlq", "replay", "--topic", "orders.dlq", "1/1")
	commands := printed(r.err)
	require.Equal(t, "dlq replay --topic orders.dlq --reason id_conflict --new-id 1/1", commands[1])
	b.ok(strings.Fields(commands[1])...)
	require.Len(t, b.replayed(), 1)
}

// A question that is not answered leaves nothing behind in the topic, also where it was read for it.
func TestReplay_OnATopicWithoutLettersAsksNothing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.terminal, b.typed = true, readerFunc(func([]byte) (int, error) { require.Fail(t, "asked"); return 0, io.EOF })
	require.Contains(t, b.ok("dlq", "replay", "--topic", "orders.dlq").err, "no letter of orders.dlq matches")
	require.Empty(t, kafkatest.ReadAll(t, b.brokers, "orders.billing.replay"))
}
