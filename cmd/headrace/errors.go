package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headrace/headrace/dlq"
)

// errReported says that a command failed and has told everything itself.
var errReported = errors.New("failed")

// usageError is a wrong command line.
type usageError struct {
	err  error
	hint string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }
func (e *usageError) Hint() string  { return e.hint }

func usagef(format string, args ...any) *usageError {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// fix adds what to do about it.
func (e *usageError) fix(hint string) *usageError {
	e.hint = hint
	return e
}

// failure is an error and what to do about it.
type failure struct {
	err  error
	hint string
}

func (e *failure) Error() string { return e.err.Error() }
func (e *failure) Unwrap() error { return e.err }
func (e *failure) Hint() string  { return e.hint }

// hintOf is what an error knows of its remedy.
func hintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

// safe is a text without what looks like a secret, and without the passwords that this command was given, whatever they
// look like.
func safe(s streams, text string) string { return dlq.Message(errors.New(hide(s, text))) }

// hide takes out the passwords alone: a hint is our own text, and what looks like a secret in it is an example.
func hide(s streams, text string) string {
	for _, secret := range given(s) {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// given are the passwords in the environment. Those in flags and files are taken out where they are read.
func given(s streams) []string {
	var list []string
	for _, name := range []string{envPassword, envPassword2, "PGPASSWORD"} {
		list = append(list, s.getenv(name))
	}
	list = append(list, passwordsIn(s.getenv(envDSN))...)
	var long []string
	for _, secret := range list {
		if len(secret) > 3 { // the shortest would take letters out of every word, and protect nothing
			long = append(long, secret)
		}
	}
	return long
}

// passwordsIn are the passwords of a connection string, of which a URL has room for two; none if it cannot be read.
func passwordsIn(dsn string) (list []string) {
	if u, err := url.Parse(dsn); err == nil {
		password, _ := u.User.Password()
		list = append(list, password)
	}
	if cfg, err := pgconn.ParseConfig(dsn); err == nil {
		list = append(list, cfg.Password)
	}
	return list
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}
