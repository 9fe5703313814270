package consumer

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"

	"github.com/headrace/headrace/kafka"
)

func (c Config) missing() []Problem {
	var ps []Problem
	if len(c.Brokers) == 0 {
		ps = append(ps, Problem{What: "Brokers is empty", Fix: `set Config.Brokers, for example []string{"localhost:9092"}`})
	}
	for _, b := range c.Brokers {
		if what := notAnAddress(b); what != "" {
			ps = append(ps, Problem{What: fmt.Sprintf("Brokers has %q, which %s", b, what), Fix: `write host:port, for example "localhost:9092"`})
		}
	}
	if c.Group == "" {
		ps = append(ps, Problem{What: "Group is empty", Fix: "set Config.Group to the consumer group's name; the inbox remembers by it"})
	}
	if c.DB == nil {
		ps = append(ps, Problem{What: "DB is nil", Fix: "set Config.DB to a pool of the database that the handlers write to"})
	}
	return ps
}

// notAnAddress says what a broker's address has that host:port has not; "" if it is one.
func notAnAddress(broker string) string {
	_, port, err := net.SplitHostPort(broker)
	number, notNumber := strconv.Atoi(port)
	switch {
	case strings.Contains(broker, "://"):
		return "has a scheme"
	case strings.ContainsAny(broker, ", \t\r\n"):
		return "is more than one address: each is an element of its own"
	case err != nil:
		return "has no port"
	case notNumber != nil || number < 1 || number > math.MaxUint16:
		return fmt.Sprintf("has %q for a port", port)
	}
	return ""
}

func (c Config) relations(specs []spec) []Problem {
	ps := negatives("Config", c.durations())
	ps = append(ps, negativeCounts("Config", []namedCount{
		{"Writers", c.Writers}, {"MaxInFlight", c.MaxInFlight}, {"MaxInFlightBytes", int(c.MaxInFlightBytes)},
	})...)
	if c.HeartbeatInterval > c.SessionTimeout/3 && c.SessionTimeout > 0 {
		ps = append(ps, Problem{
			What: fmt.Sprintf("HeartbeatInterval %s does not fit three times into SessionTimeout %s",
				short(c.HeartbeatInterval), short(c.SessionTimeout)),
			Fix: fmt.Sprintf("lower HeartbeatInterval to %s or less", short(c.SessionTimeout/3)),
		})
	}
	if err := c.OnOffsetLoss.Validate(); err != nil {
		ps = append(ps, Problem{What: err.Error(), Fix: "leave it out to hold"})
	}
	if c.InboxRetention < 0 && c.InboxRetention != kafka.Forever {
		ps = append(ps, Problem{
			What: fmt.Sprintf("InboxRetention is %s", short(c.InboxRetention)), Fix: "give a positive duration, kafka.Forever, or 0 for its default",
		})
	}
	if most := largestBatch(specs); c.MaxInFlight > 0 && c.MaxInFlight < most {
		ps = append(ps, Problem{
			What: fmt.Sprintf("MaxInFlight %d is below the largest MaxBatch %d", c.MaxInFlight, most),
			Fix:  fmt.Sprintf("raise MaxInFlight to %d or more, or lower MaxBatch", most),
		})
	}
	return ps
}

func (c Config) durations() []Term {
	return []Term{
		{"SessionTimeout", c.SessionTimeout},
		{"HeartbeatInterval", c.HeartbeatInterval},
		{"RebalanceTimeout", c.RebalanceTimeout},
		{"MaxPollInterval", c.MaxPollInterval},
		{"DrainGrace", c.DrainGrace},
		{"HardGrace", c.HardGrace},
		{"CommitInterval", c.CommitInterval},
		{"CommitReserve", c.CommitReserve},
		{"DeadLetterTimeout", c.DeadLetterTimeout},
		{"MaxHold", c.MaxHold},
		{"MaxBatchTime", c.MaxBatchTime},
	}
}

func largestBatch(specs []spec) int {
	most := 0
	for _, s := range specs {
		most = max(most, s.options.MaxBatch)
	}
	return most
}
