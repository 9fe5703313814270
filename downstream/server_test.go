package downstream_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

// server is one that misbehaves: a listener, and what it does with the requests that it has read.
type server struct {
	url   string
	conns atomic.Int64
	reads atomic.Int64 // requests that were read, at least their headers
	tls   *tls.Config  // of clients that trust it
}

// listen serves each connection with f, which may keep it open as long as the test.
func listen(t testing.TB, secure *tls.Config, f func(s *server, c net.Conn)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{url: "http://" + l.Addr().String()}
	if secure != nil {
		l, s.url = tls.NewListener(l, secure), "https://"+l.Addr().String()
	}
	done := make(chan struct{})
	var conns connSet
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			conns.serve(c, func() { f(s, c) })
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		conns.end()
	})
	return s
}

// http1 serves each request with f; false closes the connection.
func http1(t testing.TB, f func(c net.Conn, n int64, req *http.Request) bool) *server {
	t.Helper()
	return listen(t, nil, func(s *server, c net.Conn) {
		in := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			n := s.reads.Add(1)
			if req.Header.Get("Expect") == "" {
				_, _ = io.Copy(io.Discard, req.Body)
			}
			if !f(c, n, req) {
				return
			}
		}
	})
}

func reply(c net.Conn, status int, body string, headers ...string) bool {
	text := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Length: %d\r\n", status, http.StatusText(status), len(body))
	for _, h := range headers {
		text += h + "\r\n"
	}
	_, err := io.WriteString(c, text+"\r\n"+body)
	return err == nil
}

func reset(c net.Conn) bool {
	_ = c.(*net.TCPConn).SetLinger(0)
	return false
}

// http2Server answers the HEADERS of each request with what f writes, once its body is there too.
func http2Server(t testing.TB, f func(fr *http2.Framer, stream uint32) bool) *server {
	t.Helper()
	trusted := httptest.NewUnstartedServer(nil)
	trusted.EnableHTTP2 = true
	trusted.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	trusted.StartTLS()
	cfg := trusted.TLS.Clone()
	client := trusted.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusted.Close()
	cfg.NextProtos = []string{"h2"}
	s := listen(t, cfg, func(s *server, c net.Conn) { serveFrames(s, c, f) })
	s.tls = &tls.Config{RootCAs: client.RootCAs, ServerName: "example.com", MinVersion: tls.VersionTLS12}
	return s
}

func serveFrames(s *server, c net.Conn, f func(fr *http2.Framer, stream uint32) bool) {
	if _, err := io.CopyN(io.Discard, c, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	fr := http2.NewFramer(c, c)
	if fr.WriteSettings() != nil {
		return
	}
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			return
		}
		var ended bool
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() && fr.WriteSettingsAck() != nil {
				return
			}
		case *http2.HeadersFrame:
			s.reads.Add(1)
			ended = frame.StreamEnded()
		case *http2.DataFrame:
			ended = frame.StreamEnded()
		}
		if ended && !f(fr, frame.Header().StreamID) {
			return
		}
	}
}
