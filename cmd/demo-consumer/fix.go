package main

import (
	"errors"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// fix is a line that says what to do about err, "" if nobody knows.
func fix(err error, s settings) string {
	hint := ""
	hinted := (interface{ Hint() string })(nil)
	switch {
	case errors.As(err, &hinted):
		hint = hinted.Hint()
	case errors.As(err, new(*pgconn.ConnectError)) && s.dsn != "":
		hint = "see that Postgres is up, and check -dsn"
	case errors.As(err, new(*net.OpError)) && len(s.brokers) > 0:
		hint = "see that the brokers are up, and check -brokers"
	case errors.As(err, new(*net.OpError)) || errors.As(err, new(*pgconn.ConnectError)):
		hint = "what is built in has ended, or a port of this machine was taken: run it again"
	}
	if hint == "" {
		return ""
	}
	return "\n  fix: " + hint
}
