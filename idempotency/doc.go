// Package idempotency is the other side of a call that carries an Idempotency-Key: an http.Handler that runs each key
// once, on Postgres, and gives whoever repeats the request the first one's answer. It follows the IETF's draft
// "The Idempotency-Key HTTP Header Field", and needs nothing else of Headrace.
//
//	keys, err := idempotency.New(pool, idempotency.Config{Principal: tenantOf})
//	…
//	mux.Handle("POST /charges", keys.Tx("charge", http.HandlerFunc(charge)))
//
//	func charge(w http.ResponseWriter, r *http.Request) {
//		_, err := idempotency.Tx(r.Context()).Exec(r.Context(), `insert into charges …`)
//		…
//		w.WriteHeader(http.StatusCreated)
//	}
//
// # Two modes
//
// [Keys.Tx] is for effects in the same database. The key's row and the effect are one transaction, so there is nothing to
// find out after a crash: both are there, or neither. While it runs, an advisory lock of the transaction says so to
// others; a dead owner's key frees itself.
//
// [Keys.External] is for effects elsewhere. The key's row is committed before the handler runs, and never taken over by
// time: nobody can tell a dead owner from a slow one, and with a lease that ends a slow one is run twice. An owner that
// has not finished by its deadline leaves the key unknown, until Reconcile or an operator says what became of it.
//
// # What is answered
//
//	no key, one that is none, or a body that ends early   400
//	nobody ([Config].Principal gave "")                   401
//	a body longer than MaxBytes                           413
//	the first request of a key                            what the handler answers
//	the key is in progress, same body                     409 and Retry-After
//	the key is unknown (External)                         409 and Retry-After
//	the key came with another path, query or body         422
//	the key is finished                                   the stored answer, with Idempotency-Replayed: true
//	the database is away: nothing was done                503 and Retry-After
//	the reply to COMMIT was lost: it may be done          500; repeated with the same key, it is found out
//
// Our own answers are application/problem+json; their types begin with urn:headrace:idempotency:.
//
// Stored are 2xx, 3xx and what is final of 4xx. Not stored are 5xx, and 401, 408, 421, 423, 425 and 429, which say "not
// now". In Tx mode such an answer rolls the effect back, and the next request with the key runs. In External mode a 4xx
// of these frees the key, and 5xx leaves it unknown. A handler that knows better calls [Forget].
//
// # A key's life
//
//	              Tx: one transaction                     External: a row that is committed first
//
//	free ──► locked ──► finished, stored       free ──► running ──► finished, stored
//	  ▲         │                                ▲        │  │ deadline, 5xx, panic
//	  └─────────┘ 5xx, panic, Forget, crash      │ Forget │  ▼
//	                                             ├────────┘ unknown ──► finished   Reconcile: Done; ResolveDone
//	                                             └────────────┘ Reconcile: NotDone; ResolveNotDone
//
// A finished key is kept for [Config].Retention and then swept ([Keys.Run]); an unknown one is kept until it is resolved.
package idempotency
