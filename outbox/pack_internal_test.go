package outbox

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
)

func TestPacks(t *testing.T) {
	t.Parallel()

	t.Run("GiveBackWhatWasPutIn", func(t *testing.T) {
		t.Parallel()
		want := []event{
			{messageID: "1", bytes: 70, key: nil, value: nil, headers: []byte{}},
			{messageID: "2", bytes: 71, key: []byte{}, value: []byte{}, headers: encodeHeaders(nil)},
			{messageID: strings.Repeat("ü", 300), bytes: 1_000_000, key: []byte{0, 255}, value: bytes.Repeat([]byte("v"), 5000), headers: []byte("\x02a\x02b")},
		}
		p := pack{topic: "t"}
		for i := range want {
			p.of = append(p.of, &draft{topic: "t", body: want[i].body()})
		}
		r := &row{id: 2048, topic: "t"}
		require.NoError(t, r.unpack(len(want), p.packed()))
		for i := range want {
			want[i].id, want[i].topic, want[i].of = 2048+int64(i), "t", r
			require.Equal(t, want[i], r.events[i])
		}
	})

	t.Run("KeepTheOrderOfEachTopic", func(t *testing.T) {
		t.Parallel()
		var ds []*draft
		for i := range 5000 {
			d, err := newDraft(fmt.Sprint("t", i%3), message.NewMessage(fmt.Sprintf("%d", i), bytes.Repeat([]byte("x"), i%100*i%150)))
			require.NoError(t, err)
			ds = append(ds, &d)
		}
		next := map[string]int{"t0": 0, "t1": 1, "t2": 2}
		for _, p := range packs(ds) {
			packed := p.packed()
			require.LessOrEqual(t, len(packed), packBytes+len(p.of)*3)
			require.LessOrEqual(t, len(p.of), packEvents)
			for _, d := range p.of {
				var e event
				require.NoError(t, e.parse(d.body))
				require.Equal(t, fmt.Sprint(next[p.topic]), e.messageID)
				next[p.topic] += 3
			}
		}
		require.Equal(t, map[string]int{"t0": 5001, "t1": 5002, "t2": 5000}, next)
	})

	t.Run("OneEventIsInColumnsOfItsOwn", func(t *testing.T) {
		t.Parallel()
		large, err := newDraft("t", message.NewMessage("large", make([]byte, packBytes+1)))
		require.NoError(t, err)
		for _, p := range packs([]*draft{&large, &large}) {
			require.Nil(t, p.packed())
		}
	})
}

func FuzzUnpack(f *testing.F) {
	e := event{messageID: "id", key: []byte("k"), headers: []byte{}}
	p := pack{of: []*draft{{body: e.body()}, {body: e.body()}}}
	f.Add(2, p.packed())
	f.Add(1, []byte{})
	f.Fuzz(func(t *testing.T, n int, b []byte) {
		if n < 1 || n > packEvents {
			return
		}
		r := &row{id: 1}
		if err := r.unpack(n, b); err != nil {
			require.ErrorIs(t, err, errPack)
			return
		}
		again := pack{}
		for i := range r.events {
			again.of = append(again.of, &draft{body: r.events[i].body()})
		}
		s := &row{id: 1}
		require.NoError(t, s.unpack(n, append(again.packed(), packedOne(again)...)))
		for i := range r.events {
			r.events[i].of = s
		}
		require.Equal(t, r.events, s.events)
	})
}

// packedOne is what a pack of one would be.
func packedOne(p pack) []byte {
	if len(p.of) > 1 {
		return nil
	}
	return appendBytes(nil, p.of[0].body, false)
}
