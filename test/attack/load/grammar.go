package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/test/attack/audit"
)

// grammar makes records. It is used by one producer.
type grammar struct {
	rng     *rand.Rand
	topic   string
	killers []string // what those do that are left to be written
	tame    bool
	earlier []*kgo.Record // some of those that have an id, to be sent again
}

// next makes some records that are sent together: one as a rule.
func (g *grammar) next() []*kgo.Record {
	switch n := g.rng.IntN(1000); {
	case g.tame:
		return []*kgo.Record{g.ordinary()}
	case n < 30:
		return g.again()
	case n < 35:
		return g.conflict()
	case n < 60:
		return []*kgo.Record{g.garbage()}
	case n < 62:
		return []*kgo.Record{g.huge()}
	case n < 64:
		return []*kgo.Record{g.manyHeaders()}
	case n < 66 && len(g.killers) > 0:
		do := g.killers[0]
		g.killers = g.killers[1:]
		return []*kgo.Record{g.order(do, 0, audit.Dead)}
	}
	r := g.odd()
	if len(g.earlier) < 100 && text(r, "ce_id") {
		g.earlier = append(g.earlier, r)
	}
	return []*kgo.Record{r}
}

// ordinary is an order of which one in a thousand is dead, one is parked, and some are tried twice.
func (g *grammar) ordinary() *kgo.Record {
	do, n, fate := "", 0, audit.Effect
	switch draw := g.rng.IntN(1000); {
	case draw < 1:
		do, fate = Fail, audit.Dead
	case draw < 2:
		do, n = Later, 1000
	case draw < 5:
		do, n = Flaky, 1
	}
	r := g.order(do, n, fate)
	r.Timestamp = time.Time{} // of now
	return r
}

// odd is an order with a fate.
func (g *grammar) odd() *kgo.Record {
	switch n := g.rng.IntN(100); {
	case n < 3:
		return g.order(Fail, 0, audit.Dead)
	case n < 7:
		return g.order(Flaky, 1+g.rng.IntN(2), audit.Effect)
	case n < 9:
		return g.order(Skips, 0, audit.Skip)
	case n < 11:
		return g.order(Panics, 0, audit.Dead)
	case n < 13:
		return g.order(Slow, 5+g.rng.IntN(50), audit.Effect)
	case n < 16:
		return g.order(Deadlock, g.rng.IntN(Accounts), audit.Effect)
	case n < 17:
		return g.order(Breaks, 0, audit.Dead)
	case n < 19:
		return g.order(Later, 500+g.rng.IntN(4000), audit.Effect)
	case n < 20:
		return g.order(Late, 0, audit.Effect)
	}
	return g.order("", 0, audit.Effect)
}

func (g *grammar) order(do string, n int, fate string) *kgo.Record {
	value, err := json.Marshal(Order{
		Account: g.rng.IntN(Accounts), Amount: int64(g.rng.IntN(1000)), Do: do, N: n, Mark: Secret,
	})
	if err != nil {
		panic(err) // it is made of numbers and texts
	}
	r := &kgo.Record{Topic: g.topic, Key: g.key(), Value: value}
	r.Headers = append(g.identity(), kgo.RecordHeader{Key: audit.FateHeader, Value: []byte(fate)})
	switch g.rng.IntN(50) {
	case 0:
		r.Timestamp = time.UnixMilli(1) // long ago
	case 1:
		r.Timestamp = time.Now().Add(50 * time.Minute) // of an hour from now brokers take none
	case 2:
		r.Headers = append(r.Headers, hostile...)
	}
	return r
}

// hostile headers have the names of ours, and of nobody.
var hostile = []kgo.RecordHeader{
	{Key: "", Value: []byte("no name")},
	{Key: "twice", Value: []byte("1")},
	{Key: "twice", Value: nil},
	{Key: "\xff\xfe", Value: []byte("\xc3\x28")},
	{Key: "headrace-dlq", Value: []byte("-3")},
	{Key: "headrace-offset", Value: []byte("9223372036854775808")},
	{Key: "headrace-route", Value: []byte("\x00\x1b[2J")},
	{Key: "traceparent", Value: []byte("00-zz-zz-zz")},
}

// key: some are hot, some are not text, and some are none.
func (g *grammar) key() []byte {
	switch n := g.rng.IntN(20); n {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return []byte{0xff, 0x00, byte(g.rng.IntN(4))}
	default:
		return fmt.Appendf(nil, "%s-%d", SecretKey, g.rng.IntN(40))
	}
}

// identity is what the record is named by: as this producer's kind does it.
func (g *grammar) identity() []kgo.RecordHeader {
	id := g.uuid()
	switch n := g.rng.IntN(20); {
	case n < 10:
		return []kgo.RecordHeader{{Key: "ce_id", Value: []byte(id)}}
	case n < 12:
		return []kgo.RecordHeader{{Key: "ce_source", Value: []byte("/attack")}, {Key: "ce_id", Value: []byte("order " + id)}}
	case n < 15:
		return []kgo.RecordHeader{{Key: "_watermill_message_uuid", Value: []byte(id)}}
	case n == 15:
		return []kgo.RecordHeader{{Key: "ce_id", Value: append([]byte{0xff}, id...)}}
	case n == 16:
		return []kgo.RecordHeader{{Key: "ce_id", Value: []byte{}}, {Key: "_watermill_message_uuid", Value: []byte(id)}}
	}
	return nil // its place
}

func (g *grammar) uuid() string {
	var b [16]byte
	for i := range b {
		b[i] = byte(g.rng.Uint32())
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return uuid.UUID(b).String()
}

// again is an earlier record once more, with its id, and with another key, which may take it to another partition.
func (g *grammar) again() []*kgo.Record {
	if len(g.earlier) == 0 {
		return nil
	}
	old := g.earlier[g.rng.IntN(len(g.earlier))]
	r := &kgo.Record{Topic: old.Topic, Key: old.Key, Value: old.Value, Headers: old.Headers}
	if g.rng.IntN(2) == 0 {
		r.Key = g.key()
	}
	return []*kgo.Record{r}
}

// conflict is two orders of one id. Whichever comes first counts.
func (g *grammar) conflict() []*kgo.Record {
	a, b := g.order("", 0, ""), g.order("", 1, "")
	a.Headers = []kgo.RecordHeader{{Key: "ce_id", Value: []byte(g.uuid())}}
	b.Headers = a.Headers
	return []*kgo.Record{a, b}
}

// garbage cannot be decoded.
func (g *grammar) garbage() *kgo.Record {
	r := g.order("", 0, audit.Dead)
	r.Value = [][]byte{nil, {}, []byte("{"), fmt.Appendf(nil, `{"account":%q}`, Secret), fmt.Appendf(nil, `{"mark":%q`, Secret), {0xff, 0xfe, 0}}[g.rng.IntN(6)]
	return r
}

func (g *grammar) huge() *kgo.Record {
	r := g.order("", 0, audit.Effect)
	r.Value = append(r.Value, bytes.Repeat([]byte(" "), 700_000)...)
	return r
}

func (g *grammar) manyHeaders() *kgo.Record {
	r := g.order("", 0, audit.Effect)
	for i := range 10_000 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "h", Value: fmt.Append(nil, i)})
	}
	return r
}

func text(r *kgo.Record, name string) bool {
	for _, h := range r.Headers {
		if h.Key == name && len(h.Value) == 36 {
			return true
		}
	}
	return false
}
