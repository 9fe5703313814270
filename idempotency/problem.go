package idempotency

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// problemType is before the name of each problem of ours.
const problemType = "urn:headrace:idempotency:"

// problem is an answer of ours (RFC 9457).
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	retryAfter time.Duration
}

func (p problem) answer() Answer {
	p.Type = problemType + p.Type
	body, _ := json.Marshal(p) // strings and a number
	h := http.Header{"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"}}
	if p.retryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((p.retryAfter+time.Second-1)/time.Second), 10))
	}
	return Answer{Status: p.Status, Header: h, Body: append(body, '\n')}
}

const sameKey = "repeat the request with the same key"

func badKey(err error) reply {
	return refusal(problem{Type: "key-invalid", Status: http.StatusBadRequest, Title: "Idempotency-Key is missing or invalid", Detail: err.Error()})
}

func badBody(err error, limit int) reply {
	if tooLong(err) {
		return refusal(problem{
			Type: "request-too-large", Status: http.StatusRequestEntityTooLarge, Title: "The request is too large",
			Detail: "its body has more than " + strconv.Itoa(limit) + " bytes",
		})
	}
	return refusal(problem{Type: "body-unreadable", Status: http.StatusBadRequest, Title: "The request's body ended early"})
}

func nobody() reply {
	return refusal(problem{Type: "unauthenticated", Status: http.StatusUnauthorized, Title: "Nobody is known to send this request"})
}

func refusal(p problem) reply { return reply{outcome: Refused, answer: p.answer()} }

func (k *Keys) inProgress() reply {
	return reply{outcome: InProgress, answer: problem{
		Type: "in-progress", Status: http.StatusConflict, Title: "A request is outstanding for this Idempotency-Key",
		Detail: "its answer will be there when it has ended: " + sameKey, retryAfter: k.cfg.RetryAfter,
	}.answer()}
}

// isUnknown has the client come less often: it waits for Reconcile's other side, or for a human.
func (k *Keys) isUnknown() reply {
	return reply{outcome: Unknown, answer: problem{
		Type: "outcome-unknown", Status: http.StatusConflict, Title: "Nobody knows what became of this Idempotency-Key's first request",
		Detail: "it will not be run again before that is found out: " + sameKey, retryAfter: max(k.cfg.RetryAfter, 10*time.Second),
	}.answer()}
}

func mismatch() reply {
	return reply{outcome: Mismatched, answer: problem{
		Type: "key-reused", Status: http.StatusUnprocessableEntity, Title: "Idempotency-Key is already used",
		Detail: "it came with another path, query or body before",
	}.answer()}
}

// failed: surely not done.
func (k *Keys) failed(err error) reply {
	return reply{outcome: Failed, err: err, answer: problem{
		Type: "unavailable", Status: http.StatusServiceUnavailable, Title: "Nothing was done",
		Detail: sameKey, retryAfter: k.cfg.RetryAfter,
	}.answer()}
}

// refusedByDatabase: surely not done, and not for want of a database.
func refusedByDatabase(err error) reply {
	return reply{outcome: Failed, err: err, answer: problem{
		Type: "not-committed", Status: http.StatusInternalServerError, Title: "Nothing was done", Detail: sameKey,
	}.answer()}
}

// lost: it may be done.
func lost(err error) reply {
	return reply{outcome: Lost, err: err, answer: problem{
		Type: "outcome-unknown", Status: http.StatusInternalServerError, Title: "It may have been done, or not",
		Detail: "to find out, " + sameKey,
	}.answer()}
}

func tooLarge(outcome string) reply {
	return reply{outcome: outcome, err: ErrTooLarge, answer: problem{
		Type: "answer-too-large", Status: http.StatusInternalServerError, Title: "The answer is too large to be stored",
	}.answer()}
}
