package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Client is a client of another language: a program that writes what its input says (wire.go).
type Client struct {
	// Name is that of the client, java or librdkafka.
	Name    string
	Command []string
}

// child is a running one.
type child struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan error // one a batch, and one for good when it has ended
}

// dial starts the program. What it complains about is in a file of dir.
func (c Client) dial(brokers []string, transactionalID, dir string, codecs [2]codec) (sender, error) {
	log, err := os.OpenFile(filepath.Join(dir, "client-"+c.Name+".txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	args := slices.Concat(c.Command[1:], []string{strings.Join(brokers, ","), transactionalID, codecs[0].name, codecs[1].name})
	p := &child{cmd: exec.Command(c.Command[0], args...), answers: make(chan error, 1)}
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is the driver's
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.listen(c.Name, out)
	return p, nil
}

func (p *child) listen(name string, out io.Reader) {
	defer close(p.answers)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		p.answers <- nil
	}
	p.answers <- fmt.Errorf("client %s: %w", name, p.cmd.Wait())
}

func (p *child) send(ctx context.Context, how ending, records []*kgo.Record) error {
	if _, err := p.in.Write(encode(how, records)); err != nil {
		return err
	}
	select {
	case err := <-p.answers:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// close kills it: what it has under way nobody waits for.
func (p *child) close() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill() // it may have ended
	for range p.answers {    // until it has
	}
}
