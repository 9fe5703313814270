package claim

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/headrace/headrace/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ample is a limit that nothing reaches.
var ample = Limit{Records: 1 << 30, Bytes: 1 << 40}

func newTestClaim(limit Limit) *Claim {
	return New(Config{Topic: "t", TopicID: uuid.New(), Partition: 3}, limit)
}

// raw makes a record; an empty key is none.
func raw(offset int64, key string) *kgo.Record {
	r := &kgo.Record{Offset: offset, LeaderEpoch: 7, Value: []byte("v")}
	if key != "" {
		r.Key = []byte(key)
	}
	return r
}

// raws makes records from offset 0 on, one a key.
func raws(keys ...string) []*kgo.Record {
	rs := make([]*kgo.Record, len(keys))
	for i, key := range keys {
		rs[i] = raw(int64(i), key)
	}
	return rs
}

func open() bool { return false }

// try gives the next batch if there is one now.
func try(l *Line) *Batch { return l.take() }

func offsets(rs []*record.Record) []int64 {
	var os []int64
	for _, r := range rs {
		os = append(os, r.Offset)
	}
	return os
}

func settle(rs ...*record.Record) {
	for _, r := range rs {
		r.Settle(record.Effected)
	}
}

func next(t *testing.T, l *Line) *Batch {
	t.Helper()
	b := l.Next(context.Background().Done(), open)
	if b == nil {
		t.Fatal("the line has ended")
	}
	return b
}
