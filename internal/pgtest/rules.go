package pgtest

import (
	"regexp"
	"strings"
	"sync"
)

// Request is what a client sends before it waits for an answer: a simple query, or the messages of the extended
// protocol up to a Sync. A pgx batch is one request.
type Request struct {
	// Index counts the requests of all the proxy's connections from 0, in the order they arrived.
	Index int
	// SQL is the text of each statement that the request executes. It is empty when the request only prepares.
	SQL []string
}

// Match picks requests.
type Match func(Request) bool

var commit = regexp.MustCompile(`(?i)(?:^|;)\s*(?:commit|end)\b`)

// Commit matches a request that commits: COMMIT or END as a statement of its own or among others.
func Commit(r Request) bool {
	for _, sql := range r.SQL {
		if commit.MatchString(sql) {
			return true
		}
	}
	return false
}

// Any matches every request.
func Any(Request) bool { return true }

// At matches the request of this index.
func At(index int) Match {
	return func(r Request) bool { return r.Index == index }
}

// SQL matches a request that executes a statement with this text in it, upper or lower case.
func SQL(text string) Match {
	text = strings.ToLower(text)
	return func(r Request) bool {
		for _, sql := range r.SQL {
			if strings.Contains(strings.ToLower(sql), text) {
				return true
			}
		}
		return false
	}
}

// Action is what the proxy does to a request that a rule matches.
type Action struct {
	kind  actionKind
	until <-chan struct{}
}

type actionKind uint8

const (
	forward actionKind = iota
	cutBefore
	cutReply
	swallowReply
	hold
	holdReply
)

var (
	// CutBefore cuts the connection before the request reaches the server: it is surely not executed.
	CutBefore = Action{kind: cutBefore}
	// CutReply lets the server execute the request to its end and cuts the connection in place of the reply: it is
	// surely executed, and the client cannot know.
	CutReply = Action{kind: cutReply}
	// SwallowReply lets the server execute the request and keeps the reply, while the connection stays: the client waits
	// until its own deadline.
	SwallowReply = Action{kind: swallowReply}
)

// Hold keeps the request from the server until the channel is closed.
func Hold(until <-chan struct{}) Action { return Action{kind: hold, until: until} }

// HoldReply lets the server execute the request at once, and keeps the reply until the channel is closed.
func HoldReply(until <-chan struct{}) Action { return Action{kind: holdReply, until: until} }

// rules are the rules of a proxy and its count of requests.
type rules struct {
	mu    sync.Mutex
	list  []*rule
	count int
}

type rule struct {
	match  Match
	action Action
	once   bool
	fired  chan struct{}
}

func (rs *rules) add(r *rule) *rule {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.fired = make(chan struct{})
	rs.list = append(rs.list, r)
	return r
}

func (rs *rules) remove(r *rule) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.removeLocked(r)
}

func (rs *rules) removeLocked(r *rule) {
	for i, other := range rs.list {
		if other == r {
			rs.list = append(rs.list[:i], rs.list[i+1:]...)
			return
		}
	}
}

// decide numbers a request and returns what the first rule that matches it says.
func (rs *rules) decide(sql []string) Action {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	request := Request{Index: rs.count, SQL: sql}
	rs.count++
	for _, r := range rs.list {
		if !r.match(request) {
			continue
		}
		if r.once {
			rs.removeLocked(r)
			close(r.fired)
		}
		return r.action
	}
	return Action{}
}

func (rs *rules) requests() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.count
}
