package dedup

import (
	"sort"

	"github.com/headrace/headrace/record"
)

// frail are the keys (domains) that failed when one of their records ran last. The next one most likely fails too: it is
// tried again, or the key is what is wrong. So in every group the records of frail keys run last, behind a savepoint: when
// they fail, nothing of the others is undone, and nothing of it runs twice.
//
// The route's lock guards it.
type frail map[domain]struct{}

// maxFrail bounds the memory of keys that never come again.
const maxFrail = 10_000

// has says whether e is likely to fail. One that depends on no other is known by its own attempts.
func (f frail) has(e *entry) bool {
	if e.r.Domain() == "" {
		return e.r.Attempts > 0
	}
	if len(f) == 0 {
		return false
	}
	_, has := f[e.domain()]
	return has
}

// learn takes note of what has become of a group.
func (f *frail) learn(g *group) {
	for _, e := range g.entries {
		switch {
		case e.r.Domain() == "":
		case e.charged:
			f.add(e.domain())
		case len(*f) > 0 && e.outcome != record.Unsettled:
			delete(*f, e.domain())
		}
		e.charged = false
	}
}

func (f *frail) add(d domain) {
	if *f == nil || len(*f) >= maxFrail {
		*f = frail{}
	}
	(*f)[d] = struct{}{}
}

// frailLast puts those of es that are likely to fail behind the others, and says how many others there are. What must stay
// in order is frail as a whole or not at all.
func (w *writer) frailLast(es []*entry) (firm int) {
	last := w.last[:0]
	for _, e := range es {
		if e.frail {
			last = append(last, e)
			continue
		}
		es[firm] = e
		firm++
	}
	copy(es[firm:], last)
	clear(last)
	w.last = last
	return firm
}

// firmOf counts those of es, of whom the frail are the last, that are not.
func firmOf(es []*entry) int {
	return sort.Search(len(es), func(i int) bool { return es[i].frail })
}
