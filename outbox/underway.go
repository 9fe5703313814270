package outbox

// underway are the rows that were read and are not deleted yet.
type underway struct {
	packs   map[int64]*row // of which some events may be confirmed and others not
	deleted []int64        // rows whose events are all confirmed: to be deleted
	apart   []*row         // packs to be taken apart
}

// events are those of rows that are still to be sent.
func (u *underway) events(rows []*row) (events []*event) {
	n := 0
	for _, r := range rows {
		n += len(r.events)
	}
	events = make([]*event, 0, n)
	for _, r := range rows {
		if r = u.known(r); r.left == 0 {
			continue
		}
		for j := range r.events {
			if e := &r.events[j]; !e.confirmed {
				events = append(events, e)
			}
		}
	}
	return events
}

// known is the row with what is known of it.
func (u *underway) known(r *row) *row {
	if len(r.events) == 1 {
		return r
	}
	if k := u.packs[r.id]; k != nil && len(k.events) == len(r.events) {
		return k
	}
	u.packs[r.id] = r
	return r
}

// confirmed takes note that e is with the brokers.
func (u *underway) confirmed(e *event) {
	e.confirmed = true
	if e.of.left--; e.of.left == 0 {
		u.deleted = append(u.deleted, e.of.id)
	}
}

// half has those packs taken apart of which half is confirmed: whoever goes on would send all of them again.
func (u *underway) half() {
	for _, r := range u.packs {
		if r.left > 0 && r.left < len(r.events) {
			u.apart = append(u.apart, r)
		}
	}
}

// forget lets go of rows that are deleted.
func (u *underway) forget() {
	for _, id := range u.deleted {
		delete(u.packs, id)
	}
	u.deleted = u.deleted[:0]
}
