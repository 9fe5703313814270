package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// event is a line of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// report turns the events into what a person wants to see.
type report struct {
	out     io.Writer
	running map[string]*strings.Builder // the output of each package's tests, until they end
	passed  int
	failed  int
	skipped []skip
	took    time.Duration
}

type skip struct {
	name   string
	reason string
}

func newReport(out io.Writer) *report {
	return &report{out: out, running: map[string]*strings.Builder{}}
}

func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		_, _ = r.out.Write(line) // go's own words
		return
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output(e)
	case "pass", "fail", "skip":
		r.end(e)
	}
}

// output keeps what a test says until it is known how it ended, and prints what the package says: the lines that go test
// prints without -v.
func (r *report) output(e event) {
	if e.Test == "" {
		if e.Output != "PASS\n" {
			fmt.Fprint(r.out, e.Output)
		}
		return
	}
	key := e.Package + "." + e.Test
	if r.running[key] == nil {
		r.running[key] = &strings.Builder{}
	}
	r.running[key].WriteString(e.Output)
}

func (r *report) end(e event) {
	if e.Test == "" {
		r.endPackage(e)
		return
	}
	said := r.take(e.Package + "." + e.Test)
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped = append(r.skipped, skip{name: e.Package + "." + e.Test, reason: reasonIn(said)})
	case "fail":
		r.failed++
		fmt.Fprint(r.out, said)
	}
}

// endPackage prints what the tests said that never ended: a panic or a timeout ended the package under them. A package
// that fails without a failed test counts as one.
func (r *report) endPackage(e event) {
	unfinished := false
	for key := range r.running {
		if said := r.running[key]; strings.HasPrefix(key, e.Package+".") && e.Action == "fail" {
			unfinished = true
			fmt.Fprint(r.out, said)
			delete(r.running, key)
		}
	}
	if e.Action == "fail" && (unfinished || r.failed == 0) {
		r.failed++
	}
}

func (r *report) take(key string) string {
	said := r.running[key]
	delete(r.running, key)
	if said == nil {
		return ""
	}
	return said.String()
}

// reasonIn finds the words of t.Skip among what a test said: the line after "file.go:12: ".
func reasonIn(said string) string {
	reason := "no reason given"
	for line := range strings.Lines(said) {
		if _, text, found := strings.Cut(line, ".go:"); found {
			if _, words, found := strings.Cut(text, ": "); found {
				reason = strings.TrimSpace(words)
			}
		}
	}
	return reason
}

// summarise ends the output: what was skipped and how to add it, and the count.
func (r *report) summarise(out io.Writer, missing string) {
	fmt.Fprintln(out)
	withoutBroker := 0
	for _, s := range r.skipped {
		if strings.HasPrefix(s.reason, "no real broker") {
			withoutBroker++
			continue
		}
		fmt.Fprintf(out, "skipped: %s: %s\n", s.name, s.reason)
	}
	switch {
	case missing != "":
		fmt.Fprintf(out, "%d tests on the real Apache Kafka were not run: %s. Add them with\n\n\t%s\n\n", withoutBroker, missing, install())
	case len(r.skipped) == 0:
		fmt.Fprintf(out, "Nothing was left out of the packages asked for, what needs the real Apache Kafka included, in %s.\n", r.took.Round(time.Second))
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skipped))
}
