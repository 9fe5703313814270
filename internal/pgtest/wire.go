package pgtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Codes that stand in place of a protocol version in a connection's first message.
const (
	cancelCode = 80877102
	sslCode    = 80877103
	gssCode    = 80877104
)

const maxMessage = 1 << 30

// message is one message of the protocol as it travels: a type byte, a length that counts itself, a body.
type message []byte

func (m message) kind() byte { return m[0] }

func (m message) body() []byte { return m[5:] }

func readMessage(r io.Reader) (message, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	return readBody(r, head[:], head[1:])
}

// readStartup reads a connection's first message, which has no type byte. code is the protocol version or what stands
// in its place.
func readStartup(r io.Reader) (raw []byte, code uint32, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, 0, err
	}
	raw, err = readBody(r, head[:], head[:])
	if err != nil {
		return nil, 0, err
	}
	if len(raw) < 8 {
		return nil, 0, fmt.Errorf("a first message of %d bytes", len(raw)-4)
	}
	return raw, binary.BigEndian.Uint32(raw[4:]), nil
}

func readBody(r io.Reader, head, length []byte) ([]byte, error) {
	n := int(binary.BigEndian.Uint32(length)) - 4
	if n < 0 || n > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	var body bytes.Buffer // grows with what arrives: a wrong length must not allocate a gigabyte
	body.Write(head)
	if _, err := io.CopyN(&body, r, int64(n)); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

// statements follows one connection's prepared statements and portals, so that an Execute can be told by its SQL.
type statements struct {
	prepared map[string]string // statement -> SQL
	portals  map[string]string // portal -> SQL
	sql      []string          // executed since the last end of a request
}

func newStatements() *statements {
	return &statements{prepared: map[string]string{}, portals: map[string]string{}}
}

// see takes one message of the client and says whether it ends a request: whether the server answers it with a
// ReadyForQuery.
func (s *statements) see(m message) (ends bool) {
	switch m.kind() {
	case 'Q': // Query
		sql, _ := cutString(m.body())
		s.sql = append(s.sql, sql)
		return true
	case 'P': // Parse
		name, rest := cutString(m.body())
		s.prepared[name], _ = cutString(rest)
	case 'B': // Bind
		portal, rest := cutString(m.body())
		name, _ := cutString(rest)
		s.portals[portal] = s.prepared[name]
	case 'E': // Execute
		portal, _ := cutString(m.body())
		s.sql = append(s.sql, s.portals[portal])
	case 'S', 'F': // Sync, FunctionCall
		return true
	}
	return false
}

// take returns the SQL executed since the last call.
func (s *statements) take() []string {
	sql := s.sql
	s.sql = nil
	return sql
}

// cutString cuts a C string off the front. Without its end the rest is all string.
func cutString(b []byte) (string, []byte) {
	text, rest, _ := bytes.Cut(b, []byte{0})
	return string(text), rest
}
