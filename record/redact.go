package record

import "github.com/headrace/headrace/internal/redact"

// Redact replaces the record's value, header values, id and key in a text by [value], [header], [id] and [key], where one
// stands in it as a whole and has at least four bytes. What looks like a secret it leaves.
func (r *Record) Redact(text string) string {
	text = redact.Own(text, "value", r.Value)
	for _, h := range r.Headers {
		text = redact.Own(text, "header", h.Value)
	}
	text = redact.Own(text, "id", []byte(r.Identity.ID))
	return redact.Own(text, "key", r.Key)
}
