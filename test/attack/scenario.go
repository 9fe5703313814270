package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/headrace/headrace/test/attack/faults"
)

// scenario is what breaks: a lane breaks one thing at a time, lanes work side by side, on targets of their own.
type scenario struct {
	name  string
	lanes [][]faults.Fault
	// killers adds records that end their process, or never end.
	killers bool
	// stock runs the members under watermill-kafka's Subscriber.
	stock bool
	// pooled has a pgbouncer between the members and the database.
	pooled bool
}

var targets = []faults.Target{faults.Consumers, faults.Brokers, faults.Database, faults.Operators, faults.Services}

func scenariosOf(list string) (found []scenario, err error) {
	all := sorted()
	for _, name := range strings.Split(list, ",") {
		if name == "each" {
			for _, f := range all {
				found = append(found, scenario{name: f.Name, lanes: [][]faults.Fault{{f}}})
			}
			continue
		}
		sc, err := scenarioOf(name, all)
		if err != nil {
			return nil, err
		}
		found = append(found, sc)
	}
	return found, nil
}

// sorted are all faults in an order that does not change from run to run.
func sorted() []faults.Fault {
	all := faults.All()
	slices.SortFunc(all, func(a, b faults.Fault) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func scenarioOf(name string, all []faults.Fault) (scenario, error) {
	switch name {
	case "mixed":
		sc := scenario{name: name}
		for _, t := range targets {
			sc.lanes = append(sc.lanes, of(t, all))
		}
		return sc, nil
	case "killers":
		return scenario{name: name, killers: true}, nil
	case "stock":
		return scenario{name: name, lanes: [][]faults.Fault{of(faults.Consumers, all), of(faults.Database, all)}, stock: true}, nil
	case "pgbouncer":
		return scenario{name: name, lanes: [][]faults.Fault{of(faults.Consumers, all), of(faults.Database, all)}, pooled: true}, nil
	case "calm":
		return scenario{name: name}, nil
	}
	if lane := of(faults.Target(name), all); len(lane) > 0 {
		return scenario{name: name, lanes: [][]faults.Fault{lane}}, nil
	}
	var names []string
	for _, f := range all {
		if f.Name == name {
			return scenario{name: name, lanes: [][]faults.Fault{{f}}}, nil
		}
		names = append(names, f.Name)
	}
	return scenario{}, fmt.Errorf("no scenario %q; there are mixed, each, killers, stock, pgbouncer, calm, consumers, brokers, database, operators, services, %s", name, strings.Join(names, ", "))
}

func of(t faults.Target, all []faults.Fault) (lane []faults.Fault) {
	for _, f := range all {
		if f.Target == t {
			lane = append(lane, f)
		}
	}
	return lane
}
