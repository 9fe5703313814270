package record_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/record"
)

type ctxKey struct{}

func TestMessage(t *testing.T) {
	t.Parallel()
	ctx := context.WithValue(context.Background(), ctxKey{}, "value")

	t.Run("OneRecordIsTheMessageThatAnyHandlerExpects", func(t *testing.T) {
		t.Parallel()
		rs := bound(newOwner(), 1)
		rs[0].Headers = []record.Header{
			{Key: record.UUIDHeader, Value: []byte("id-1")}, {Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "nil"},
		}
		m := record.NewMessage(ctx, rs)
		require.Equal(t, "id-1", m.UUID)
		require.Equal(t, "v", string(m.Payload))
		require.Equal(t, message.Metadata{"a": "2", "nil": "", record.CountKey: "1"}, m.Metadata)
		require.Equal(t, "value", m.Context().Value(ctxKey{}))
		got, err := record.Records(m)
		require.NoError(t, err)
		require.Equal(t, rs, got)
	})

	t.Run("RecordWithoutAUUIDIsNamedByItsCoordinates", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "orders/3/0", record.NewMessage(ctx, bound(newOwner(), 1)).UUID)
	})

	t.Run("SeveralHaveNoPayload", func(t *testing.T) {
		t.Parallel()
		m := record.NewMessage(ctx, bound(newOwner(), 5))
		require.Nil(t, m.Payload)
		require.Equal(t, "orders/3/0-4", m.UUID)
		require.Equal(t, "5", m.Metadata[record.CountKey])
	})

	t.Run("EditedPayloadLeavesTheRecordAsItWasDelivered", func(t *testing.T) {
		t.Parallel()
		r := bound(newOwner(), 1)[0]
		record.NewMessage(ctx, []*record.Record{r}).Payload[0] = 'x'
		record.Single(ctx, r).Payload[0] = 'x'
		require.Equal(t, "v", string(r.Value))
	})

	t.Run("CopyThatLostItsRecordsIsAnError", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{1, 3} {
			_, err := record.Records(record.NewMessage(ctx, bound(newOwner(), n)).Copy())
			require.ErrorIs(t, err, record.ErrNoRecords)
			require.ErrorContains(t, err, "context was dropped")
		}
	})

	t.Run("ForeignMessageIsAnError", func(t *testing.T) {
		t.Parallel()
		_, err := record.Records(message.NewMessage("theirs", nil))
		require.ErrorIs(t, err, record.ErrNoRecords)
		require.ErrorContains(t, err, `"theirs"`)
	})

	t.Run("DerivedMessageCarriesSomeAndSharesNothing", func(t *testing.T) {
		t.Parallel()
		rs := bound(newOwner(), 3)
		outer := record.NewMessage(ctx, rs)
		inner := record.Derive(outer, rs[1:2])
		inner.Metadata["mine"] = "1"
		got, err := record.Records(inner)
		require.NoError(t, err)
		require.Equal(t, rs[1:2], got)
		require.NotContains(t, outer.Metadata, "mine")
		inner.Nack()
		select {
		case <-outer.Nacked():
			t.Error("a derived message's Nack reached the outer one")
		default:
		}
		all, err := record.Records(outer)
		require.NoError(t, err)
		require.Len(t, all, 3)
	})

	t.Run("SingleHasTheIdentityAndHidesTheNeighbours", func(t *testing.T) {
		t.Parallel()
		rs := bound(newOwner(), 3)
		rs[1].Identity.ID = "order-7"
		outer := record.NewMessage(ctx, rs)
		m := record.Single(outer.Context(), rs[1])
		require.Equal(t, "order-7", m.UUID)
		require.Same(t, rs[1], record.Of(m.Context()))
		require.Nil(t, record.Of(outer.Context()))
		require.Equal(t, "value", m.Context().Value(ctxKey{}))
		_, err := record.Records(m)
		require.ErrorIs(t, err, record.ErrNoRecords)
	})
}
