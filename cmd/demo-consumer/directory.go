package main

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// customer is what the directory knows of an account's owner.
type customer struct {
	Language string `json:"language"`
}

// directory is a service that only answers questions: GET /customers/7.
type directory struct {
	server *http.Server
	url    string
	away   atomic.Bool
}

func startDirectory() (*directory, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &directory{url: "http://" + listener.Addr().String()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /customers/{account}", d.answer)
	d.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = d.server.Serve(listener) }() // until close; a broken one is away
	return d, nil
}

func (d *directory) answer(w http.ResponseWriter, r *http.Request) {
	account, err := strconv.Atoi(r.PathValue("account"))
	switch {
	case d.away.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	case err != nil:
		w.WriteHeader(http.StatusNotFound)
	default:
		_ = json.NewEncoder(w).Encode(customer{Language: languageOf(account)}) // who has hung up asks again
	}
}

// languageOf is the language of an account's owner.
func languageOf(account int) string { return [...]string{"de", "fr", "pl"}[account%3] }

func (d *directory) close() { _ = d.server.Close() }
