package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/internal/kafkatest"
)

func TestDuplicates(t *testing.T) {
	t.Parallel()

	// One message carries the id twice, in one key, beside records of other keys.
	t.Run("InOneFetchHaveOneEffect", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		rs := w.orders(40, 4, order{})
		w.produce(rs...)
		w.produce(fresh(rs)...)
		w.produce(w.orders(40, 10, order{})...)
		m := w.start(w.setup())
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 120, Effected: 80, Duplicate: 40}, w.one())
	})

	t.Run("OfADeadRecordHaveNoLetterOfTheirOwn", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		rs := w.orders(10, 10, order{Do: "fail"})
		w.produce(rs...)
		m := w.start(w.setup())
		w.drained()
		w.produce(fresh(rs)...)
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 20, Dead: 10, Duplicate: 10}, w.one())
	})

	t.Run("OfASkippedRecordAreDuplicates", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kafkatest.Fake(t).ListenAddrs(), 1)
		rs := w.orders(10, 10, order{Do: "skip"})
		w.produce(rs...)
		m := w.start(w.setup())
		w.drained()
		w.produce(fresh(rs)...)
		w.drained()
		m.quit()
		require.Equal(t, tally{Records: 20, Skipped: 10, Duplicate: 10}, w.one())
	})
}
