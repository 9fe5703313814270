package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// clock is a stopwatch that starts with the first record's handler, so that joining the group is not measured, and
// counts the records that were handled.
type clock struct {
	once  sync.Once
	began time.Time
	n     atomic.Int64
	died  atomic.Pointer[error]
}

func (c *clock) first() { c.once.Do(func() { c.began = time.Now() }) }

func (c *clock) done() { c.n.Add(1) }

// fail says that the contender ended by itself.
func (c *clock) fail(err error) { c.died.Store(&err) }

// err is why the contender ended, nil while it runs.
func (c *clock) err() error {
	if p := c.died.Load(); p != nil {
		return *p
	}
	return nil
}
