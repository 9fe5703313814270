package consumer

import (
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/kafka"
)

// validate finds everything that the configuration alone shows to be wrong, budgets included.
func validate(c Config, specs []spec) []Problem {
	var ps []Problem
	ps = append(ps, c.missing()...)
	ps = append(ps, c.dependencyProblems()...)
	ps = append(ps, dependenciesApart(specs, c.Dependencies)...)
	ps = append(ps, c.relations(specs)...)
	ps = append(ps, outside("Config", c.bounds())...)
	ps = append(ps, routesTogether(specs)...)
	ps = append(ps, c.replayNames(specs)...)
	for _, s := range specs {
		ps = append(ps, s.problems(c)...)
	}
	return append(ps, plan(c, specs).problems()...)
}

// plan is every sum that must fit.
func plan(c Config, specs []spec) Plan {
	p := make(Plan, 0, len(specs)+1)
	for _, s := range specs {
		p = append(p, s.budget(c).sum())
		if sum, declared := s.outgoing(); declared {
			p = append(p, sum)
		}
	}
	return append(p, c.rebalance().sum())
}

func (p Plan) problems() []Problem {
	var ps []Problem
	for _, s := range p {
		if !s.Fits() {
			ps = append(ps, Problem{What: s.table(), Fix: s.Fix()})
		}
	}
	return ps
}

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

// routesTogether finds what no route shows alone.
func routesTogether(specs []spec) []Problem {
	seen := map[string]string{}
	var ps []Problem
	for _, s := range specs {
		if topic, twice := seen[s.name]; twice && s.name != "" {
			ps = append(ps, Problem{
				What: fmt.Sprintf("two routes are named %q, on topics %q and %q", s.name, topic, s.topic),
				Fix:  "name them apart: the inbox would take the records of one for those of the other",
			})
		}
		seen[s.name] = s.topic
	}
	return append(ps, loops(specs)...)
}

// loops finds routes whose dead letters come back to them, directly or by way of other routes: a record that always
// fails would go round for ever.
func loops(specs []spec) []Problem {
	var ps []Problem
	for _, s := range specs {
		if s.topic != "" && reaches(specs, s.options.DeadLetterTopic, s.topic, len(specs)) {
			ps = append(ps, Problem{
				What: fmt.Sprintf("the dead letters of route %q go to %q and from there back to its topic %q",
					s.name, s.options.DeadLetterTopic, s.topic),
				Fix: "give it a DeadLetterTopic that no route on the way consumes",
			})
		}
	}
	return ps
}

func reaches(specs []spec, from, to string, steps int) bool {
	if from == to {
		return true
	}
	if steps == 0 {
		return false
	}
	for _, s := range specs {
		if s.topic == from && reaches(specs, s.options.DeadLetterTopic, to, steps-1) {
			return true
		}
	}
	return false
}

func (s spec) problems(c Config) []Problem {
	of := fmt.Sprintf("route %q", s.name)
	var ps []Problem
	if s.name == "" {
		ps = append(ps, Problem{What: fmt.Sprintf("a route on topic %q has no Name", s.topic), Fix: fmt.Sprintf("set %s.Name, once and for ever: the inbox remembers by it", s.kind)})
	}
	ps = append(ps, unstorable("the Name of a route on topic "+strconv.Quote(s.topic), s.name)...)
	ps = append(ps, s.topicProblems(of)...)
	if s.work == nil {
		field := "Apply"
		if s.kind == queueRoute {
			field = "Queue"
		}
		fix := fmt.Sprintf("set %s.%s", s.kind, field)
		if s.call != nil {
			fix += ", or its Queue"
		}
		ps = append(ps, Problem{What: fmt.Sprintf("%s has no %s", of, field), Fix: fix})
	}
	ps = append(ps, s.callProblems(c, of)...)
	ps = append(ps, s.parkingProblems(of)...)
	o := s.options
	if o.Store > dedup.ByOffset {
		ps = append(ps, Problem{What: fmt.Sprintf("%s: Store is %s, which there is not", of, o.Store), Fix: "give dedup.ByID or dedup.ByOffset"})
	}
	ps = append(ps, nils(of, "Identity", len(o.Identity), func(i int) bool { return o.Identity[i] == nil })...)
	ps = append(ps, nils(of, "Middlewares", len(o.Middlewares), func(i int) bool { return o.Middlewares[i] == nil })...)
	ps = append(ps, nils(of, "Rules", len(o.Rules), func(i int) bool { return o.Rules[i] == nil })...)
	ps = append(ps, negatives(of, []Term{
		{"AttemptTimeout", s.options.AttemptTimeout},
		{"BackoffBase", s.options.BackoffBase},
		{"BackoffCap", s.options.BackoffCap},
	})...)
	ps = append(ps, s.normalProblems(of)...)
	ps = append(ps, outside(of, s.options.bounds())...)
	ps = append(ps, negativeCounts(of, []namedCount{
		{"Attempts", s.options.Attempts}, {"MaxBatch", s.options.MaxBatch}, {"Lanes", s.options.Lanes},
	})...)
	if s.options.BackoffBase > s.options.BackoffCap && s.options.BackoffCap > 0 {
		ps = append(ps, Problem{
			What: fmt.Sprintf("%s: BackoffBase %s is above BackoffCap %s", of, short(s.options.BackoffBase), short(s.options.BackoffCap)),
			Fix:  "lower BackoffBase or raise BackoffCap to " + short(s.options.BackoffBase),
		})
	}
	return ps
}

// normalProblems finds a NormalTime that no attempt has.
func (s spec) normalProblems(of string) []Problem {
	normal, most := s.options.NormalTime, add(s.callTimeout(), s.options.AttemptTimeout)
	switch {
	case normal == downstream.Measured:
		return nil
	case normal < 0:
		return negatives(of, []Term{{"NormalTime", normal}})
	case normal > 0 && normal > most:
		return []Problem{{
			What: fmt.Sprintf("%s: NormalTime %s is more than an attempt may take, %s: every budget would be too small for it", of, short(normal), short(most)),
			Fix:  "lower NormalTime to " + short(most) + ", or raise the timeouts",
		}}
	}
	return nil
}

// nils finds the members of a list that would panic with every record.
func nils(of, list string, n int, is func(i int) bool) []Problem {
	var ps []Problem
	for i := range n {
		if is(i) {
			ps = append(ps, Problem{What: fmt.Sprintf("%s: %s[%d] is nil", of, list, i), Fix: "give one, or leave it out"})
		}
	}
	return ps
}

type namedCount struct {
	name  string
	value int
}

func negativeCounts(of string, counts []namedCount) []Problem {
	var ps []Problem
	for _, n := range counts {
		if n.value < 0 {
			ps = append(ps, Problem{
				What: fmt.Sprintf("%s: %s is %d", of, n.name, n.value),
				Fix:  "leave it 0 for its default, or give a positive number",
			})
		}
	}
	return ps
}

func negatives(of string, ds []Term) []Problem {
	var ps []Problem
	for _, d := range ds {
		if d.Took < 0 {
			ps = append(ps, Problem{
				What: fmt.Sprintf("%s: %s is %s", of, d.Name, short(d.Took)),
				Fix:  "leave it 0 for its default, or give a positive duration",
			})
		}
	}
	return ps
}

func largestBatch(specs []spec) int {
	most := 0
	for _, s := range specs {
		most = max(most, s.options.MaxBatch)
	}
	return most
}

// warnings are what may be meant, and is worth a line at start.
func warnings(c Config, specs []spec) []string {
	var ws []string
	for _, s := range specs {
		if need := s.options.AttemptTimeout + c.CommitReserve; need > c.DrainGrace {
			ws = append(ws, fmt.Sprintf("route %q: AttemptTimeout %s + CommitReserve %s = %s exceeds DrainGrace %s: "+
				"an attempt that needs all its time is cut off by a rebalance and done again",
				s.name, short(s.options.AttemptTimeout), short(c.CommitReserve), short(need), short(c.DrainGrace)))
		}
		if s.byOffset() && s.options.Identity != nil {
			ws = append(ws, fmt.Sprintf("route %q: Identity names its events and calls, and keeps no duplicate away: Store is the offset store, "+
				"so a record that its producer sends twice has its effect twice", s.name))
		}
		if strings.HasSuffix(s.topic, replaySuffix) {
			ws = append(ws, fmt.Sprintf("route %q consumes %q, which is named as another consumer group's replay topic: "+
				"if it is one, its records are dead letters of that group, which replays them for itself", s.name, s.topic))
		}
		if s.callTimeout() > c.DrainGrace {
			ws = append(ws, fmt.Sprintf("route %q: CallTimeout %s exceeds DrainGrace %s: "+
				"a call that needs all its time is cut off by a rebalance and made again with the same key",
				s.name, short(s.callTimeout()), short(c.DrainGrace)))
		}
	}
	return ws
}
