package main

import (
	"fmt"
	"strings"

	"github.com/headrace/headrace/bench/internal/child"
	"github.com/headrace/headrace/bench/internal/load"
	"github.com/headrace/headrace/bench/internal/result"
)

// contender is who takes part, and how.
type contender struct {
	// name is unique in a scenario: who, and behind slashes what is varied.
	name    string
	mode    string
	jvm     string // the module of peers/jvm, "" for this binary
	options child.Options
	books   load.Books
	// silent calls nobody, in a scenario of those who do.
	silent bool
	// change makes the topic another one than the scenario's.
	change func(*load.Shape)
}

// with is the contender with another setting, under a name that says so.
func (c contender) with(name string, set func(*child.Options)) contender {
	c.name += "/" + name
	set(&c.options)
	return c
}

// silent is the contender among those who call.
func silent(c contender) contender {
	c.silent = true
	return c
}

// over is the contender over another topic.
func (c contender) over(name string, change func(*load.Shape)) contender {
	c.name += name
	c.change = change
	return c
}

// aQuarter is for those who make a transaction a record: their rate is the same from the first second to the last.
func aQuarter(s *load.Shape) { s.Records = max(s.Records/4, 1) }

// The kinds of Headrace's routes, as contenders call them.
var kinds = []string{"apply", "queue", "batch"}

// stores are Headrace's memories.
var stores = []string{"inbox", "offsets"}

func headrace(kind, store string) contender {
	c := contender{name: "headrace-" + kind + "-" + store, mode: "headrace-" + kind, books: load.Inbox}
	if store == "offsets" {
		c.options.Store, c.books = store, load.Offsets
	}
	return c
}

// routes are all kinds of Headrace's routes on some stores.
func routes(stores ...string) (all []contender) {
	for _, kind := range kinds {
		for _, store := range stores {
			all = append(all, headrace(kind, store))
		}
	}
	return all
}

func stock() contender {
	return contender{name: result.Stock, mode: "stock", books: load.StockInbox, change: aQuarter}
}

// underStock is Headrace under watermill-kafka's Subscriber: one record of a partition at a time.
func underStock() contender {
	c := headrace("apply", "inbox")
	c.name, c.change, c.options.Transport = "headrace-apply-inbox-kafka-stock", aQuarter, "stock"
	return c
}

// experts are franz-go by hand, with the default's group size and with a larger one.
func experts() (all []contender) {
	for _, mode := range []string{"franz-rows", "franz-set", "franz-cte"} {
		for _, poll := range []int{500, 2000} {
			all = append(all, contender{
				name: fmt.Sprintf("%s-%d", mode, poll), mode: mode, books: load.StockInbox, options: child.Options{Poll: poll},
			})
		}
	}
	return all
}

// others write a transaction a record on a bare client.
func others() []contender {
	return []contender{
		{name: "sarama", mode: "sarama", books: load.StockInbox, change: aQuarter},
		{name: "franz-plain", mode: "plain", books: load.StockInbox, change: aQuarter, options: child.Options{Poll: 500}},
	}
}

// limits are what nobody can pass: Postgres driven with full groups, and Kafka read.
func limits() (all []contender) {
	for _, mode := range []string{"postgres-rows", "postgres-set"} {
		for writers := 1; writers <= 4; writers++ {
			all = append(all, contender{
				name: fmt.Sprintf("%s-%d", mode, writers), mode: mode, books: load.StockInbox,
				options: child.Options{Poll: 500, Writers: writers},
			})
		}
	}
	return append(all,
		contender{name: "kafka-franz", mode: "kafka-franz", books: load.Nothing},
		contender{name: "kafka-sarama", mode: "kafka-sarama", books: load.Nothing},
	)
}

// jvmPeers are written in Java, see peers/jvm.
func jvmPeers() []contender {
	spring := func(mode string, change func(*load.Shape)) contender {
		return contender{name: mode, mode: mode, jvm: "spring", books: load.StockInbox, change: change}
	}
	parallel := func(mode string, change func(*load.Shape)) contender {
		return contender{name: mode, mode: mode, jvm: "parallel", books: load.StockInbox, change: change}
	}
	return []contender{
		spring("spring-record", aQuarter), spring("spring-record-ack-batch", aQuarter), spring("spring-batch", nil), spring("spring-unnest", nil),
		parallel("parallel-record", aQuarter), parallel("parallel-batch", nil), parallel("parallel-unnest", nil),
	}
}

// callers are the routes with a call.
func callers() []contender {
	inFlight := func(o *child.Options) { o.InFlight = 256 }
	route := contender{name: "headrace-call", mode: "headrace-call", books: load.Inbox}
	queue := contender{name: "headrace-call/queue", mode: "headrace-call-queue", books: load.Inbox}
	return []contender{
		route, route.with("in-flight-256", inFlight), queue.with("in-flight-256", inFlight),
		route.with("kafka-stock", func(o *child.Options) { o.Transport = "stock" }),
	}
}

// contenders are all, for whoever names one.
func contenders() []contender {
	all := append(append([]contender{stock(), underStock()}, callers()...), routes(stores...)...)
	for _, more := range [][]contender{experts(), others(), limits(), jvmPeers()} {
		all = append(all, more...)
	}
	return all
}

func contenderNames() string {
	var names []string
	for _, c := range contenders() {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}
