package middleware

import "github.com/headrace/headrace/record"

// stackRoom is what decoders and handlers need of a stack, in bytes.
const stackRoom = 8 << 10

// deepen grows the stack at once to what is needed further in. The Router starts a goroutine a message, with two
// kilobytes: doubled on the way inwards, all frames above would be copied three times, which was a quarter of the CPU of a
// message of one. The frame's size is enough; nothing is written to it, because there is always a record.
//
//go:noinline
func deepen(rs []*record.Record) byte {
	if len(rs) > 0 {
		return 0
	}
	var room [stackRoom]byte
	for i := range room {
		room[i] = byte(i)
	}
	return room[len(rs)]
}
