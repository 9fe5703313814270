package consumer

import "sync"

// notTaken knows which dead letters nobody takes up that are replayed to this consumer group: those for a route that does
// not run here, because all members of a group run the same routes. Each route asks about each letter of another one; it
// answers true once for each name. It is safe for concurrent use.
type notTaken struct {
	mu    sync.Mutex
	known map[address]struct{} // the routes that run, and those that were told of
}

// address is a route as letters name it: by the replay topic that it reads and its name.
type address struct{ topic, route string }

// maxStrangers bounds the names that are remembered: whoever may write to a replay topic can make them up.
const maxStrangers = 1000

func newNotTaken(specs []spec) *notTaken {
	n := &notTaken{known: make(map[address]struct{}, len(specs))}
	for _, s := range specs {
		n.known[address{s.replay, s.name}] = struct{}{}
	}
	return n
}

func (n *notTaken) first(topic, route string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	a := address{topic, route}
	if _, known := n.known[a]; known || len(n.known) >= maxStrangers {
		return false
	}
	n.known[a] = struct{}{}
	return true
}
