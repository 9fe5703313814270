package idempotency

import (
	"net/http"
	"time"

	"github.com/google/uuid"
)

// Verdict is what a Reconcile has found out of a key.
type Verdict uint8

const (
	// StillUnknown: nobody can tell now. The next request asks again.
	StillUnknown Verdict = iota
	// Done: it was done, and w has the answer.
	Done
	// NotDone: it was not done, and the run that began will not do it any more. It is run now.
	NotDone
)

// Reconcile finds out what became of the key of an unknown run, which [KeyOf] gives: it asks the other system. r is a
// repetition of the request, with the same body; the answer of what was done goes to w. One request asks at a time, and
// has Config.Timeout for it.
//
// It must not say NotDone because it has not found anything yet: the run that began may be slow, and alive. The other
// system must have refused it, or must refuse it from now on, as one that has the key itself does.
type Reconcile func(w http.ResponseWriter, r *http.Request) Verdict

// reconcile asks what became of the run with the token old. Meanwhile the key is in progress; the owner may still finish
// it. Each change says whose run it changes, so what somebody else has decided stands.
func (k *Keys) reconcile(c *call, old uuid.UUID, ask Reconcile) reply {
	switch changed, err := k.persist(c, k.sql.reopen, c.key.args(old)); {
	case err != nil:
		return k.failed(err)
	case changed == 0: // somebody else asks, or it is decided; or the reply to ours was lost, and it is unknown again later
		return k.inProgress()
	}
	verdict, a := k.ask(c, old, ask)
	token, began := uuid.New(), time.Now()
	var err error
	switch verdict {
	case StillUnknown:
		k.leave(c, old, "reconcile could not tell")
		return k.isUnknown()
	case Done:
		_, err = k.persist(c, k.sql.resolve, c.key.args(append([]any{old}, append(k.columns(a), token)...)...))
	case NotDone:
		_, err = k.persist(c, k.sql.retry, c.key.args(old, token))
	}
	if err != nil {
		return k.failed(err)
	}
	return k.resolved(c, token, began)
}

// resolved goes by what is there: a reply may have been lost, and an owner may have been quicker.
func (k *Keys) resolved(c *call, token uuid.UUID, began time.Time) reply {
	ctx, cancel := c.detached(finishTimeout)
	defer cancel()
	r, err := k.rowOf(ctx, c.key)
	switch {
	case err != nil:
		return k.failed(err)
	case r == nil:
		return k.inProgress()
	case r.token == token && r.status == nil:
		return k.runOutside(c, token, began)
	}
	return k.known(c, r)
}

// ask runs the user's function. An answer that cannot be stored is none.
func (k *Keys) ask(c *call, token uuid.UUID, reconcile Reconcile) (Verdict, Answer) {
	ctx, cancel := c.detached(k.cfg.Timeout)
	defer cancel()
	returned := false
	defer func() {
		if !returned {
			k.leave(c, token, "reconcile panicked")
		}
	}()
	b := newBuffer(k.cfg.MaxBytes)
	verdict := reconcile(b, c.again(withRun(ctx, &run{key: c.key})))
	returned = true
	a := b.answer()
	if verdict == Done && (b.over || !final(a.Status)) || verdict > NotDone {
		verdict = StillUnknown
	}
	return verdict, a
}
