package lab

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers each request with its correlation id, as brokers do, and tells which it has had and when a client is gone.
type server struct {
	net.Listener
	had  chan uint32
	gone chan struct{}
}

func serve(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	s := &server{Listener: l, had: make(chan uint32, 100), gone: make(chan struct{}, 100)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.answer(conn)
		}
	}()
	return s
}

func (s *server) answer(conn net.Conn) {
	_ = eachFrame(conn, func(frame []byte) error {
		s.had <- binary.BigEndian.Uint32(frame[8:])
		_, err := conn.Write(append([]byte{0, 0, 0, 4}, frame[8:12]...))
		return err
	})
	_ = conn.Close()
	s.gone <- struct{}{}
}

func request(key kmsg.Key, id uint32) []byte {
	b := []byte{0, 0, 0, 8, 0, byte(key), 0, 0}
	return binary.BigEndian.AppendUint32(b, id)
}

func ask(t *testing.T, conn net.Conn, key kmsg.Key, id uint32) error {
	t.Helper()
	_, err := conn.Write(request(key, id))
	require.NoError(t, err)
	return heard(conn, id)
}

func heard(conn net.Conn, id uint32) error {
	var answer [8]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	if got := binary.BigEndian.Uint32(answer[4:]); got != id {
		return fmt.Errorf("the answer to %d, not to %d", got, id)
	}
	return nil
}

func tap(t *testing.T, s *server) (tap *Tap, dial func() net.Conn) {
	t.Helper()
	tap, err := openTap(s.Addr().String(), true)
	require.NoError(t, err)
	t.Cleanup(tap.close)
	return tap, func() net.Conn {
		conn, err := net.Dial("tcp", tap.addr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

func TestTap(t *testing.T) {
	const produce, fetch = kmsg.Produce, kmsg.Fetch

	t.Run("LosesTheAnswersThatItIsToldOfAndNoOther", func(t *testing.T) {
		s := serve(t)
		tap, dial := tap(t, s)
		stop := tap.Lose(true, produce)
		conn := dial()
		require.NoError(t, ask(t, conn, fetch, 1))
		require.Error(t, ask(t, conn, produce, 2))
		require.Equal(t, []uint32{1, 2}, []uint32{<-s.had, <-s.had}, "what is not answered was done")
		stop()
		require.NoError(t, ask(t, dial(), produce, 3))
	})

	t.Run("HangsInPlaceOfAnAnswerUntilItIsMended", func(t *testing.T) {
		s := serve(t)
		tap, dial := tap(t, s)
		stop := tap.Lose(false, produce)
		conn := dial()
		_, err := conn.Write(request(produce, 1))
		require.NoError(t, err)
		failed := make(chan error, 1)
		go func() { failed <- heard(conn, 1) }()
		require.Equal(t, uint32(1), <-s.had)
		require.NoError(t, ask(t, dial(), fetch, 2), "another connection is not concerned")
		require.Empty(t, failed)
		stop()
		require.Error(t, <-failed)
	})

	t.Run("FreezesWhatIsThereAndTellsNobodyOfTheEnd", func(t *testing.T) {
		s := serve(t)
		tap, dial := tap(t, s)
		conn := dial()
		require.NoError(t, ask(t, conn, fetch, 1))
		thaw := tap.Freeze()
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		require.ErrorIs(t, ask(t, conn, fetch, 2), os.ErrDeadlineExceeded)
		require.NoError(t, conn.Close())
		require.NoError(t, ask(t, dial(), fetch, 3))
		require.Equal(t, []uint32{1, 3}, []uint32{<-s.had, <-s.had})
		require.Empty(t, s.gone, "the server does not know")
		thaw()
		<-s.gone
	})
}
