package audit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/headrace/headrace/internal/kafkatest"
)

// fragile is a topic of six records of which the first two are cut off, one of them unread, and the others have effects.
func fragile(t *testing.T) *world {
	w := newWorld(t)
	topic := kafkatest.Topic(t, w.brokers, 1)
	kafkatest.CreateTopic(t, w.brokers, deadLetters(topic), 1)
	w.ledger.Routes = []Route{{Name: "post", Topic: topic, Fragile: true}}
	w.exec(`delete from effects`)
	for i := range 6 {
		r := w.record(Effect, string(rune('a'+i)))
		w.produce(r)
		if i > 0 {
			w.effect(text(r, "ce_id"), r.Offset)
		}
	}
	w.commit(6)
	to := kadm.Offsets{}
	to.AddOffset(topic, 0, 2, -1)
	_, err := w.admin.DeleteRecords(t.Context(), to)
	require.NoError(t, err)
	return w
}

func TestATopicThatWasCutIsCountedByWhatStandsThere(t *testing.T) {
	t.Parallel()
	got, err := Run(t.Context(), fragile(t).ledger)
	require.NoError(t, err)
	require.Empty(t, got.Violations)
	require.Equal(t, 4, got.Effected)
	require.Equal(t, 1, got.Gone)
}

func TestWhatIsWrongWithATopicThatWasCutIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(*world)
		found string
	}{
		"LostEffect":               {func(w *world) { w.exec(`delete from effects where off = 3`) }, "0/3 has 0 effects"},
		"SecondEffect":             {func(w *world) { w.effect("d", 3) }, "0/3 has 2 effects"},
		"SecondEffectOfWhatIsGone": {func(w *world) { w.effect("b", 1) }, "id b, which is gone, has 2 effects"},
		"Letter":                   {func(w *world) { w.produce(w.letterOf(w.further(Effect, "y"))) }, "a dead letter of a record that nothing was wrong with"},
		"OffsetBehind":             {func(w *world) { w.commit(5) }, "is committed to 5; its records end at 6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fragile(t)
			c.plant(w)
			got, err := Run(t.Context(), w.ledger)
			require.NoError(t, err)
			require.Condition(t, func() bool { return mentions(got.Violations, c.found) }, "%q", got.Violations)
		})
	}
}
