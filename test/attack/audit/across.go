package audit

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// strangers finds effects and letters of what is not in the topic: an aborted record for one.
func (b *books) strangers() {
	known := map[place]bool{}
	for _, r := range b.topic.records {
		known[placeOf(r)] = true
	}
	for p := range b.effects {
		if !known[p] {
			b.complain("an effect of %s, which is no record", p)
		}
	}
	for p := range b.letters {
		if !known[p] {
			b.complain("a dead letter of %s, which is no record", p)
		}
	}
}

// onceEach finds ids with two effects. The offset store does not know a producer's duplicates.
func (b *books) onceEach() {
	if b.ByOffset {
		return
	}
	first := map[string]place{}
	for p, effects := range b.effects {
		for _, e := range effects {
			if other, twice := first[e.id]; twice && other != p {
				b.complain("id %q has effects at %s and %s", e.id, other, p)
			}
			first[e.id] = p
		}
	}
}

// line is what is kept in order: the records of a key. Partitions matter because a key may be in two of them, by a
// producer of another kind.
type line struct {
	partition int32
	key       string
}

// inOrder compares the order of a key's effects with that of its records.
func (b *books) inOrder() {
	last := map[line]int64{}
	for _, r := range b.topic.records { // by partition and offset
		if r.Key == nil {
			continue // it depends on no other
		}
		at := line{r.Partition, string(r.Key)}
		for _, e := range b.effects[placeOf(r)] {
			if e.replayed {
				continue // the others of its key have not waited for it
			}
			if e.seq <= last[at] {
				b.complain("the effect of %s came before that of an earlier record of its key", placeOf(r))
			}
			last[at] = max(last[at], e.seq)
		}
	}
}

// events compares what the route has published with its effects: at least once each, first copies in order by key.
func (b *books) events(published []*kgo.Record) {
	missing := map[string]place{}
	order := map[line][]string{} // the events of a key that should come, in order
	for _, r := range b.topic.records {
		if len(b.effects[placeOf(r)]) == 0 {
			continue
		}
		id := fmt.Sprintf(EventID, r.Partition, r.Offset)
		missing[id] = placeOf(r)
		if r.Key != nil && !b.replayed(r) {
			order[line{r.Partition, string(r.Key)}] = append(order[line{r.Partition, string(r.Key)}], id)
		}
	}
	known := map[string]place{}
	for _, e := range published {
		id := text(e, "_watermill_message_uuid")
		if _, there := missing[id]; !there {
			b.complain("event %q at %s is of no effect", id, placeOf(e))
		}
		if _, again := known[id]; !again {
			known[id] = placeOf(e)
		}
	}
	for id, of := range missing {
		if _, there := known[id]; !there {
			b.complain("the effect of %s has no event", of)
		}
	}
	for _, ids := range order {
		for i := 1; i < len(ids); i++ {
			before, there := known[ids[i-1]]
			after, too := known[ids[i]]
			if there && too && before.partition == after.partition && before.offset > after.offset {
				b.complain("event %s was written before %s of its key", ids[i], ids[i-1])
			}
		}
	}
}

// replays enters what became of replays under the places where their records were first read.
func (b *books) replays(group string, replays *topic, effects map[place][]effect) {
	first := map[place]*kgo.Record{}
	for _, r := range b.topic.records {
		first[placeOf(r)] = r
	}
	for _, r := range replays.records {
		l, ok := open(r)
		switch {
		case !ok || first[l.at] == nil:
			b.complain("replay %s is of no record", placeOf(r))
			continue
		case l.fields["headrace-route"] != b.Name || l.fields["headrace-group"] != group:
			continue // effects of it are left in the map
		case l.differs(first[l.at]) != "":
			b.complain("replay %s of %s has another %s", placeOf(r), l.at, l.differs(first[l.at]))
		case len(b.letters[l.at]) == 0:
			b.complain("replay %s is of %s, which has no dead letter", placeOf(r), l.at)
		}
		for _, e := range effects[placeOf(r)] {
			e.replayed = true
			b.effects[l.at] = append(b.effects[l.at], e)
		}
		delete(effects, placeOf(r))
	}
	for at := range effects {
		b.complain("an effect of replay %s, which is none of this route's", at)
	}
}
