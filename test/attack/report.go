package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/headrace/headrace/test/attack/audit"
	"github.com/headrace/headrace/test/attack/load"
)

// report is a run's line.
type report struct {
	Seed     uint64 `json:"seed"`
	Scenario string `json:"scenario"`
	Seconds  int    `json:"seconds"`
	audit.Count
	// Clients are what each kind of producer has written, by its own account.
	Clients map[string]load.Written `json:"clients"`
	// Faults counts those that struck.
	Faults map[string]int `json:"faults"`
	// Ends counts how the members' processes have ended.
	Ends map[string]int `json:"ends"`
	// LongestStall is how many seconds there was no new effect, of the attack.
	LongestStall float64 `json:"longest_stall"`
	Peak         size    `json:"size"`
	// Troubles are what the driver could not do. They are no violation.
	Troubles []string `json:"troubles,omitempty"`
	// Further is how many violations there are beyond those of the line; all are in violations.txt beside the logs.
	Further int `json:"further_violations,omitempty"`
	// Logs are kept of a run with violations.
	Logs string `json:"logs,omitempty"`
}

// mostViolations are in the line.
const mostViolations = 20

// shorten keeps the line readable.
func (r *report) shorten() error {
	path := filepath.Join(r.Logs, "violations.txt")
	if err := os.WriteFile(path, []byte(strings.Join(r.Violations, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	if n := len(r.Violations); n > mostViolations {
		r.Violations, r.Further = r.Violations[:mostViolations], n-mostViolations
	}
	return nil
}

// idle finds clients that wrote nothing: what they would have shown nobody knows.
func idle(clients map[string]load.Written) (found []string) {
	for name, w := range clients {
		if w.Records == 0 || w.Aborted == 0 {
			found = append(found, fmt.Sprintf("client %s wrote %d records and %d that were aborted", name, w.Records, w.Aborted))
		}
	}
	return found
}

// size is the largest of any member's process, when everything is done.
type size struct {
	Goroutines int `json:"goroutines"`
	Files      int `json:"files"`
	MiB        int `json:"mib"`
}

// What an idle member may have at most. One of the same routes that has never met a fault has half of it.
const (
	mostGoroutines = 600
	mostFiles      = 200
)

func (s size) excess() (found []string) {
	if s.Goroutines > mostGoroutines {
		found = append(found, fmt.Sprintf("an idle member has %d goroutines", s.Goroutines))
	}
	if s.Files > mostFiles {
		found = append(found, fmt.Sprintf("an idle member has %d open files", s.Files))
	}
	return found
}
