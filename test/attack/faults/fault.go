// Package faults breaks a run's parts, each for a while, and mends them. A fault is a value; [All] has them by name. Those of
// one target are never together, those of different ones may be.
package faults

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/headrace/headrace/test/attack/lab"
)

// Target is what a fault breaks.
type Target string

const (
	// Consumers are the members' processes.
	Consumers Target = "consumers"
	// Brokers are the nodes of Kafka, the ways to them, and its topics.
	Brokers Target = "brokers"
	// Database is Postgres, and the way to it.
	Database Target = "database"
	// Operators are those who use the command while everything else goes on.
	Operators Target = "operators"
	// Services are what the members call.
	Services Target = "services"
)

// Fault is one.
type Fault struct {
	Name   string
	Target Target
	// Strike breaks, waits for a while that rng decides, and mends, at once when ctx ends. Its error says that it could not
	// break, or that the mended part did not come back.
	Strike func(ctx context.Context, s *lab.Site, rng *rand.Rand) error
}

// All are all faults.
func All() []Fault {
	var all []Fault
	all = append(all, consumers()...)
	all = append(all, brokers()...)
	all = append(all, network()...)
	all = append(all, taps()...)
	all = append(all, postgres()...)
	all = append(all, topics()...)
	all = append(all, operators()...)
	all = append(all, services()...)
	return append(all, letters()...)
}

// between is a random time.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(rng.Int64N(int64(most-least)+1))
}

// pick is one of them.
func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }
