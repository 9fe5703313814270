// Package child runs each contender in a process of its own, so that the processor time and the memory that it takes are
// its own. A child is told what to do by one argument, a [Spec] as JSON, and says on its standard output what it does:
//
//	READY                     it is connected and warm, and begins to consume
//	FIRST <nanoseconds>       its first handler began, at this time since 1970
//	SEEN <records>            so many records were handled; at most twenty times a second, and at once for the last one
//	TOOK <records>            so many have told when their effects were committed, if that was asked for
//	{"allocs":…}              its own figures, the last line
//
// It consumes until its standard input ends, gives back what it holds and exits with 0. Any language can play.
package child

// Spec is what a child is told.
type Spec struct {
	Bootstrap  string  `json:"bootstrap"`
	DSN        string  `json:"dsn"`
	JDBC       string  `json:"jdbc"`
	Topic      string  `json:"topic"`
	Group      string  `json:"group"`
	Partitions int32   `json:"partitions"`
	Records    int     `json:"records"`
	Mode       string  `json:"mode"`
	Options    Options `json:"options"`
}

// Options are what the contenders of one mode differ in. A child ignores those that it does not know; the zero value is
// its default.
type Options struct {
	// Store is "offsets" for Headrace's offset store.
	Store string `json:"store,omitempty"`
	// Order is "partition" for Headrace's order by partition.
	Order string `json:"order,omitempty"`
	// MaxBatch, Lanes and Writers are Headrace's.
	MaxBatch int `json:"max_batch,omitempty"`
	Lanes    int `json:"lanes,omitempty"`
	Writers  int `json:"writers,omitempty"`
	// Transport is "stock" for watermill-kafka's Subscriber.
	Transport string `json:"transport,omitempty"`
	// Events is the topic to which a route of Headrace publishes an event a record, by way of the outbox; its process
	// forwards it.
	Events string `json:"events,omitempty"`
	// Poll is the most records of a transaction, of peers.
	Poll int `json:"poll,omitempty"`
	// SleepMaxMS is the most that a handler sleeps before its effect; it sleeps any time up to that.
	SleepMaxMS float64 `json:"sleep_ms_max,omitempty"`
	// InFlight is how many calls may be made side by side.
	InFlight int `json:"in_flight,omitempty"`
	// URL is of the service that is called.
	URL string `json:"url,omitempty"`
	// Latency asks for the time from each record's Due to its committed effect.
	Latency bool `json:"latency,omitempty"`
	// Profile is the file for a CPU profile; that of the heap is beside it.
	Profile string `json:"profile,omitempty"`
}

// Figures are what a child says of itself.
type Figures struct {
	// Allocs is how many objects it allocated between FIRST and the end of its input.
	Allocs uint64 `json:"allocs,omitempty"`
	// Seconds is from the first record to the last, of a child whose effects the driver cannot see.
	Seconds float64 `json:"seconds,omitempty"`
	// Latencies are how many records took how long from Due to their committed effect.
	Latencies *Latencies `json:"latencies,omitempty"`
}

// Latencies are percentiles, in milliseconds.
type Latencies struct {
	Records int     `json:"records"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	P999    float64 `json:"p999_ms"`
	Max     float64 `json:"max_ms"`
}
