// Package redact takes out of an error's text what must not leave the process with it: secrets, what follows a URL's "?",
// and the values that databases and decoders quote when they cannot read them.
//
// It works by the looks of a text, not by the type of an error: what was wrapped, or came from another process, is text
// only. It rather takes too much.
package redact
