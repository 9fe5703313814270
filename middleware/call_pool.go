package middleware

import "sync"

// callers are the goroutines on which a route calls: as many as the dependency has places, at most, for all messages
// together. They live as long as some message is in the call layer: a goroutine a call would copy its growing stack each
// time. Messages take turns: one of few records does not wait behind all of one of many.
type callers struct {
	most int // 1 or more

	mu       sync.Mutex
	wake     sync.Cond
	messages int
	turns    []*calling // with files to be called for
	workers  int
	idle     int
}

func (p *callers) join(most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wake.L == nil {
		p.wake.L, p.most = &p.mu, most
	}
	p.messages++
}

// part takes back what of c nobody has in hand. Once no message is left the workers end.
func (p *callers) part(c *calling) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(c)
	if p.messages--; p.messages == 0 {
		p.idle = 0
		p.wake.Broadcast()
	}
}

func (p *callers) put(c *calling, f *file) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.todo = append(c.todo, f); len(c.todo) == 1 {
		p.turns = append(p.turns, c)
	}
	p.staff()
}

// staff sees to it that somebody comes for what is to be done. The lock is held.
func (p *callers) staff() {
	switch {
	case len(p.turns) == 0:
	case p.idle > 0:
		p.idle-- // it is awake from now on
		p.wake.Signal()
	case p.workers < p.most:
		p.workers++
		go p.work()
	}
}

// withdraw gives the files of c that nobody has in hand.
func (p *callers) withdraw(c *calling) []*file {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drop(c)
}

func (p *callers) drop(c *calling) []*file {
	files := c.todo
	c.todo = nil
	for i, other := range p.turns {
		if other == c {
			p.turns = append(p.turns[:i], p.turns[i+1:]...)
			break
		}
	}
	return files
}

// next waits for a file to call for; nil when there is nothing left to do for any message.
func (p *callers) next() (*calling, *file) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.turns) == 0 {
		if p.messages == 0 {
			p.workers--
			return nil, nil
		}
		p.idle++
		p.wake.Wait()
	}
	c := p.turns[0]
	f := c.todo[0]
	c.todo, p.turns = c.todo[1:], p.turns[1:]
	if len(c.todo) > 0 {
		p.turns = append(p.turns, c)
	}
	c.inHand.Add(1)
	return c, f
}

// work calls for whom there is something to call for.
func (p *callers) work() {
	var o *oneCall
	regular := false
	defer func() {
		if !regular && (o == nil || !o.left()) { // its call has ended the goroutine: another one takes its place
			p.lost()
		}
	}()
	for {
		c, f := p.next()
		if c == nil {
			regular = true
			return
		}
		o = &oneCall{c: c, f: f}
		if o.run(); o.left() {
			return
		}
	}
}

// lost is told of a worker that does not come back.
func (p *callers) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers--
	p.staff()
}
