package claim

import "cmp"

// seat is one record in one line.
type seat struct {
	entry    *entry
	offset   int64   // the entry's, near at hand for sorting
	next     *seat   // in a queue
	dom      *domain // nil: depends on no other
	delivery         // the current one
	returns  int     // how often it was given back
}

// queue is a list of seats, in offset order, that allocates nothing.
type queue struct{ first, last *seat }

func (q *queue) push(s *seat) {
	s.next = nil
	if q.last == nil {
		q.first, q.last = s, s
		return
	}
	q.last.next, q.last = s, s
}

func (q *queue) pop() *seat {
	s := q.first
	q.first, s.next = s.next, nil
	if q.first == nil {
		q.last = nil
	}
	return s
}

// insert puts s in its place. Whoever inserts many does it from the last to the first: each is then near the front.
func (q *queue) insert(s *seat) {
	at := &q.first
	for *at != nil && byOffset(*at, s) < 0 {
		at = &(*at).next
	}
	if *at == nil {
		q.push(s)
		return
	}
	s.next, *at = *at, s
}

func byOffset(a, b *seat) int { return cmp.Compare(a.offset, b.offset) }

// domain is what runs one batch after the other: a key, or the partition.
type domain struct {
	name    string
	busy    int    // seats that run, wait or back off
	batch   *Batch // the one that a seat entered last
	blocked queue  // seats that stay behind those
	freed   bool   // in its line's freed
}

// mayEnter says whether a fresh seat may run: the domain is idle, or its records are in this very batch.
func (d *domain) mayEnter(b *Batch) bool {
	return d.blocked.first == nil && (d.busy == 0 || d.batch == b)
}

func (d *domain) enter(s *seat, b *Batch) *seat {
	d.busy++
	d.batch = b
	return s
}

// domainOf gives the domain of a fresh seat, nil for one that depends on no other. A domain is found by its name in a
// scratch buffer, so that only a new one allocates.
func (l *Line) domainOf(s *seat) *domain {
	key := s.entry.rec.Key
	if l.cfg.Order == Unordered || l.cfg.Order == ByKey && key == nil {
		return nil
	}
	name := l.claim.scratch[:0]
	if l.cfg.Order == ByKey {
		name = append(name, 'k')
		name = append(name, key...)
	} else {
		name = append(name, 'p')
	}
	l.claim.scratch = name
	d := l.domains[string(name)]
	if d == nil {
		d = l.newDomain(string(name))
	}
	s.dom = d
	return d
}

func (l *Line) newDomain(name string) *domain {
	d := l.spare
	if d == nil {
		d = new(domain)
	}
	l.spare = nil
	*d = domain{name: name}
	l.domains[name] = d
	return d
}

// leave takes one seat out of its domain. An idle domain goes to those that may run, or is forgotten.
func (l *Line) leave(d *domain) {
	if d == nil {
		return
	}
	d.busy--
	l.settleDomain(d)
}

func (l *Line) settleDomain(d *domain) {
	switch {
	case d.busy > 0 || d.freed:
	case d.blocked.first != nil:
		d.freed = true
		l.freed = append(l.freed, d)
		l.Wake()
	default:
		delete(l.domains, d.name)
		d.batch = nil
		l.spare = d
	}
}
