package idempotency_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headrace/headrace/idempotency"
	"github.com/headrace/headrace/internal/embedded"
)

// A service whose effects are in its own database. Its client never heard of the first charge, and asks again.
func ExampleKeys_Tx() {
	ctx := context.Background()
	pool, stop := database(ctx)
	defer stop()
	keys, err := idempotency.New(pool, idempotency.Config{
		Principal: func(r *http.Request) string { return r.Header.Get("Tenant") }, // in life, of a verified token
		Table:     "keys",
	})
	if err != nil {
		log.Panic(err)
	}
	charge := func(w http.ResponseWriter, r *http.Request) {
		var id int
		err := idempotency.Tx(r.Context()).QueryRow(r.Context(), "insert into charges default values returning id").Scan(&id)
		if err != nil {
			http.Error(w, "not now", http.StatusServiceUnavailable) // rolled back, and not stored
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "charge %d", id)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /charges", keys.Tx("charge", http.HandlerFunc(charge)))

	ask(mux, "order-1", `{"amount": 7}`)
	ask(mux, "order-1", `{"amount": 7}`)
	ask(mux, "order-1", `{"amount": 8}`)
	ask(mux, "order-2", `{"amount": 7}`)
	ask(mux, "", `{"amount": 7}`)
	// Output:
	// 201 charge 1
	// 201 charge 1 (replayed)
	// 422 Idempotency-Key is already used
	// 201 charge 2
	// 400 Idempotency-Key is missing or invalid
}

// A service whose effects are elsewhere, here at a bank, whose answer was lost. It is asked what became of the key.
func ExampleKeys_External() {
	ctx := context.Background()
	pool, stop := database(ctx)
	defer stop()
	keys, err := idempotency.New(pool, idempotency.Config{Principal: idempotency.OnePrincipal, Table: "keys"})
	if err != nil {
		log.Panic(err)
	}
	bank := map[string]string{}
	pay := func(w http.ResponseWriter, r *http.Request) {
		key, _ := idempotency.KeyOf(r.Context())
		bank[key.Key] = "payment 1"
		w.WriteHeader(http.StatusGatewayTimeout) // the bank did it, and was not heard
	}
	reconcile := func(w http.ResponseWriter, r *http.Request) idempotency.Verdict {
		key, _ := idempotency.KeyOf(r.Context())
		payment, done := bank[key.Key]
		if !done {
			return idempotency.StillUnknown
		}
		_, _ = io.WriteString(w, payment)
		return idempotency.Done
	}
	h := keys.External("pay", http.HandlerFunc(pay), reconcile)

	ask(h, "order-1", "7")
	ask(h, "order-1", "7")
	// Output:
	// 504
	// 200 payment 1 (replayed)
}

// ask sends a request and prints what is answered.
func ask(h http.Handler, key, body string) {
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
	r.Header.Set("Tenant", "acme")
	if key != "" {
		r.Header.Set(idempotency.Header, key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	text := w.Body.String()
	if _, title, problem := strings.Cut(text, `"title":"`); problem {
		text, _, _ = strings.Cut(title, `"`)
	}
	if w.Header().Get(idempotency.ReplayedHeader) != "" {
		text += " (replayed)"
	}
	fmt.Println(strings.TrimSpace(fmt.Sprint(w.Code, " ", text)))
}

// database is an empty one with the keys' table.
func database(ctx context.Context) (pool *pgxpool.Pool, stop func()) {
	server, err := embedded.Postgres(ctx, embedded.Config{})
	if err != nil {
		log.Panic(err)
	}
	pool, err = pgxpool.New(ctx, server.DSN())
	if err != nil {
		log.Panic(err)
	}
	if _, err := pool.Exec(ctx, "create table charges (id serial); "+idempotency.Schema("keys")); err != nil {
		log.Panic(err)
	}
	return pool, func() {
		pool.Close()
		if err := server.Close(); err != nil {
			log.Panic(err)
		}
	}
}
