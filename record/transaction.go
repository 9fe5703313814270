package record

import "context"

// Transaction is the key of a context's value that is set while a handler runs whose effects are one transaction.
type Transaction struct{}

// InTransaction says whether ctx is of a handler whose effects are one transaction: what it sends elsewhere is sent
// whether or not that commits, and again each time that it runs.
func InTransaction(ctx context.Context) bool { return ctx.Value(Transaction{}) != nil }
