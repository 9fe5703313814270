package main

import (
	"errors"
	"time"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/parking"
)

// parkedJSON is a parked record as --json prints it, one a line. The names are stable: scripts read them.
type parkedJSON struct {
	Topic      string     `json:"topic"`
	Partition  int32      `json:"partition"`
	Offset     int64      `json:"offset"`
	Timestamp  *time.Time `json:"timestamp"`
	ID         string     `json:"id"`
	Group      string     `json:"group"`
	Route      string     `json:"route"`
	State      string     `json:"state"`
	Round      int        `json:"round"`
	Due        *time.Time `json:"due"` // null: held
	Since      *time.Time `json:"since"`
	Behind     int64      `json:"behind"`
	Deaths     int        `json:"deaths"`
	Replay     bool       `json:"replay"`
	Class      string     `json:"class"`
	Error      string     `json:"error"`
	Key        *string    `json:"key"` // null: none, or no UTF-8
	KeyBase64  string     `json:"key_base64,omitempty"`
	ValueBytes *int       `json:"value_bytes"` // null: no value, a tombstone
	Unreadable string     `json:"unreadable,omitempty"`
}

// parkedWholeJSON is a parked record as 'parked show --json' prints it.
type parkedWholeJSON struct {
	parkedJSON

	History []roundJSON  `json:"history"`
	Headers []headerJSON `json:"headers"`
	// ValuePreview is the value as 'show' shows it, null for none: escaped, secrets replaced. --raw gives the bytes.
	ValuePreview *string `json:"value_preview"`
}

type roundJSON struct {
	At       *time.Time `json:"at"`
	Class    string     `json:"class"`
	Attempts int        `json:"attempts"`
	Error    string     `json:"error"`
}

func parkedToJSON(w *parking.Waiting) parkedJSON {
	at, last := w.At(), w.Last()
	j := parkedJSON{
		Topic: at.Topic, Partition: at.Partition, Offset: at.Offset, Group: w.Group, Route: w.Route, State: string(w.State), Round: w.Round,
		Due: timeJSON(w.Due), Since: timeJSON(w.ParkedAt), Behind: w.Behind, Deaths: w.Deaths, Class: last.Class, Error: dlq.Message(errors.New(last.Message)),
	}
	if w.State == parking.StateBehind { // round and due are its line's
		j.Round, j.Due = 0, nil
	}
	if w.Err != nil {
		j.Unreadable = w.Err.Error()
	}
	if r := w.Record; r != nil {
		j.Timestamp, j.ID, j.Replay = timeJSON(r.Timestamp), r.Identity.ID, r.Replay
		j.Key, j.KeyBase64 = bytesJSON(r.Key)
		if n := len(r.Value); r.Value != nil {
			j.ValueBytes = &n
		}
	}
	return j
}

func parkedWholeToJSON(w *parking.Waiting) parkedWholeJSON {
	j := parkedWholeJSON{parkedJSON: parkedToJSON(w), History: []roundJSON{}, Headers: []headerJSON{}}
	for _, f := range w.History {
		j.History = append(j.History, roundJSON{At: timeJSON(f.At), Class: f.Class, Attempts: f.Attempts, Error: dlq.Message(errors.New(f.Message))})
	}
	if w.Record == nil {
		return j
	}
	j.Headers = headersJSON(w.Record.Headers)
	if w.Record.Value != nil {
		preview := dlq.Preview(w.Record.Value, maxShown)
		j.ValuePreview = &preview
	}
	return j
}
