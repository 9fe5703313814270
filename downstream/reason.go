package downstream

import (
	"context"

	"github.com/headrace/headrace/internal/redact"
	"github.com/headrace/headrace/record"
)

// reason is the failure of a call under ctx as it may be told: nothing is in its text of the record on whose behalf the
// call was made, if there is one. A RedactError is a route's or a consumer's, which look at it anew.
func reason(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if r := record.Of(ctx); r != nil {
		return redact.Rules(err, r.Redact)
	}
	return redact.Rules(err, nil)
}
