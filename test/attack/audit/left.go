package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Left says what the group has not dealt with yet, "" for nothing: partitions that are not committed to where consumers may
// read, events in the outbox, or records that are parked. It says the same as long as nothing has moved. Where the last thing
// that stands in a partition is a transaction's marker, which no consumer sees, Run knows better; so it is asked about what is
// nearly committed.
func Left(ctx context.Context, l Ledger) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, l.DSN)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	var waiting, parked int
	const question = `select (select count(*) from headrace.outbox), (select count(*) from headrace.parked_records)`
	if err := conn.QueryRow(ctx, question).Scan(&waiting, &parked); err != nil {
		return "", err
	}
	if waiting+parked > 0 {
		return fmt.Sprintf("%d events in the outbox, %d records parked", waiting, parked), nil
	}
	rd, err := newReader(l.Brokers)
	if err != nil {
		return "", err
	}
	defer rd.close()
	a := &auditor{Ledger: l, reader: rd, topics: map[string]*topic{}}
	if err := a.readTopics(ctx); err != nil {
		return "", err
	}
	a.offsets()
	slices.Sort(a.count.Violations)
	return strings.Join(a.count.Violations, "; "), nil
}
