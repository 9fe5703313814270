package dedup

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// oneRow is pgx's Row over rows that the scope knows.
type oneRow struct {
	rows  pgx.Rows
	err   error
	scope *scope
}

// Scan reads the row and closes the result.
func (r *oneRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	err := scanOne(r.rows, dest)
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		r.scope.mu.Lock()
		r.scope.failed = err
		r.scope.mu.Unlock()
	}
	return err
}

func scanOne(rows pgx.Rows, dest []any) error {
	defer rows.Close()
	for _, d := range dest {
		if _, ok := d.(*pgtype.DriverBytes); ok {
			return errors.New("cannot scan into *pgtype.DriverBytes from QueryRow")
		}
	}
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// failedRows are the rows of a query that was not let in: pgx never gives nil rows, so code that looks at the rows
// before the error must not meet them here.
type failedRows struct{ err error }

func (failedRows) Close() {}

func (r failedRows) Err() error { return r.err }

func (failedRows) CommandTag() pgconn.CommandTag { return pgconn.CommandTag{} }

func (failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }

func (failedRows) Next() bool { return false }

func (r failedRows) Scan(...any) error { return r.err }

func (r failedRows) Values() ([]any, error) { return nil, r.err }

func (failedRows) RawValues() [][]byte { return nil }

func (failedRows) Conn() *pgx.Conn { return nil }

func (failedRows) TypeMap() *pgtype.Map { return nil }
