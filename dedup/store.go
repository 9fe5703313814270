package dedup

import (
	"errors"
	"fmt"
)

// Store is where a route remembers what it has dealt with. It is permanent, as the route's name is.
type Store uint8

const (
	// ByID is the inbox: a row a record, under its identity. It knows a redelivery, and a record that its producer sent
	// twice.
	ByID Store = iota
	// ByOffset is the offset store: a row a partition, which says what offsets are done. It knows a redelivery, and not a
	// record that its producer sent twice: that one has two offsets, and two effects.
	ByOffset
)

var storeNames = [...]string{"inbox", "offset store"}

func (s Store) String() string {
	if int(s) < len(storeNames) {
		return storeNames[s]
	}
	return fmt.Sprintf("store(%d)", uint8(s))
}

// ErrStoreChanged: the route has run with the other store. Match with errors.Is; the error has a hint.
var ErrStoreChanged = errors.New("a route's store is permanent")

// storeChangedError says which route has run with which store.
type storeChangedError struct {
	group, route string
	was, is      Store
}

func (e *storeChangedError) Error() string {
	return fmt.Sprintf("%s: route %s of group %s has run with the %s, and this is the %s", ErrStoreChanged, e.route, e.group, e.was, e.is)
}

// Is makes it an ErrStoreChanged.
func (e *storeChangedError) Is(target error) bool { return target == ErrStoreChanged }

// Hint is what to do instead.
func (e *storeChangedError) Hint() string {
	return "the two stores do not know each other's records: go on with the " + e.was.String() +
		", or give the route a new name once the group's lag is 0 and all its members are stopped"
}
