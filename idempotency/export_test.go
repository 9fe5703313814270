package idempotency

import "strings"

// Break takes a part out of a statement, or puts another in its place: it makes a mutant. It panics if the part is not
// there, so that a mutant does not become the engine itself unseen.
func (k *Keys) Break(statement, part, instead string) {
	sql := k.statements()[statement]
	if !strings.Contains(*sql, part) {
		panic("idempotency: " + statement + " has no " + part)
	}
	*sql = strings.ReplaceAll(*sql, part, instead)
}

// Statements are k's, for a look at their plans.
func (k *Keys) Statements() map[string]string {
	texts := map[string]string{}
	for name, sql := range k.statements() {
		texts[name] = *sql
	}
	return texts
}

func (k *Keys) statements() map[string]*string {
	q := &k.sql
	return map[string]*string{
		"look": &q.look, "insert": &q.insert, "claim": &q.claim, "finish": &q.finish, "free": &q.free, "leave": &q.leave,
		"reopen": &q.reopen, "resolve": &q.resolve, "retry": &q.retry, "unknown": &q.unknown, "done": &q.done, "notDone": &q.notDone,
		"stats": &q.stats, "sweep": &q.sweep,
	}
}
