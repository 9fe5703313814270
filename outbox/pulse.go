package outbox

import (
	"fmt"
	"sync"
	"time"
)

// pulse is when somebody answered last, and what was wrong since then. It is safe for concurrent use.
type pulse struct {
	mu   sync.Mutex
	last time.Time // the zero value for never
	err  error     // of what was asked last, nil if it was answered
}

// note takes note of an answer, or of what came in place of one.
func (p *pulse) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err = err; err == nil {
		p.last = time.Now()
	}
}

// silent is nil while the last answer is not older than within, else it says for how long there was none, and why.
func (p *pulse) silent(who string, within time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := time.Since(p.last)
	how := "for " + age.Round(time.Second).String()
	switch {
	case p.last.IsZero():
		how = "yet"
	case age <= within:
		return nil
	}
	if p.err == nil {
		return fmt.Errorf("%s not answered %s", who, how)
	}
	return fmt.Errorf("%s not answered %s: %w", who, how, p.err)
}

// failing is silent without those who were asked nothing, or nothing that failed.
func (p *pulse) failing(who string, within time.Duration) error {
	p.mu.Lock()
	well := p.err == nil
	p.mu.Unlock()
	if well {
		return nil
	}
	return p.silent(who, within)
}
