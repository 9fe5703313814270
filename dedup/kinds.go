package dedup

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/record"
)

// Work is what a route does with its records. It is sealed: an [Apply] is one.
type Work interface{ kind() Kind }

// Kind says how a route's effects get into the transaction.
type Kind uint8

const (
	// Executed effects: each record's handler executes its SQL on the transaction, one after the other.
	Executed Kind = iota
)

func (k Kind) String() string { return kindNames[k] }

var kindNames = [...]string{"executed"}

// Apply is one record's effects: everything it writes, it writes through tx, and nothing else. It may run more than once
// before its effects stand once, because others share its transaction. ctx ends with the attempt and with the delivery.
//
// nil keeps the effects, fault.Skip keeps none and settles the record as skipped, any other error or a panic undoes them.
type Apply func(ctx context.Context, tx pgx.Tx, r *record.Record) error

func (Apply) kind() Kind { return Executed }
