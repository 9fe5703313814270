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
	// Recovery is after which SIGKILL, by the fault's name.
	Recovery map[string]recovery `json:"recovery,omitempty"`
	// Redelivered are records that came again although they had their effect, as far as processes lived to tell. The
	// offset store's are not counted.
	Redelivered int `json:"redelivered"`
	// Reports counts by kind what the members have reported to their operators, as far as processes lived to tell: a fault of
	// which nobody has a word has perhaps not struck.
	Reports map[string]int `json:"reports"`
	// Before is what the largest member had before the first fault, Size when everything was done.
	Before size `json:"before"`
	Size   size `json:"size"`
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
