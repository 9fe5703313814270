package main

import (
	"net"
	"net/http"
)

// listen takes an address without a host for one of this machine alone: who wants to be seen from elsewhere says so.
func listen(address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.Listen("tcp", net.JoinHostPort(host, port))
}

// serve serves until end is called.
func serve(address string, handler http.Handler) (at net.Addr, end func() error, err error) {
	listener, err := listen(address)
	if err != nil {
		return nil, nil, usagef("--metrics %s: %w", address, err).fix("name an address of this machine that is free, as in :9102")
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: reachWithin}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	return listener.Addr(), func() error {
		defer func() { <-done }()
		return server.Close()
	}, nil
}
