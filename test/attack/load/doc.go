// Package load writes the records that a run attacks with: all the time, by several producers, no two alike.
//
//	l, err := load.Start(ctx, load.Config{Brokers: brokers, Seed: 1, Topics: […]})
//	…
//	l.Stop() // no transaction is open afterwards
//
// The producers are plain franz-go clients, one a codec, and a transactional one that aborts, and clients of other languages
// ([Client]), which do both; none has Watermill's headers unless its records say so. They go past the run's
// proxies. What they could write, the topics say.
package load

// Order is what a record says.
type Order struct {
	Account int    `json:"account"`
	Amount  int64  `json:"amount"`
	Do      string `json:"do,omitempty"` // what the handler is to do, "" for its work
	N       int    `json:"n,omitempty"`  // of Do: attempts that fail, milliseconds, another account
	Mark    string `json:"mark"`         // Secret, which must not be seen in a log
}

const (
	// Secret is in every value that is JSON.
	Secret = "s3cr3t-payl0ad"
	// SecretKey is in every key that is text.
	SecretKey = "s3cr3t-k3y"
	// Accounts is how many there are.
	Accounts = 50
)

// What handlers are told to do.
const (
	Fail     = "fail"     // for good
	Flaky    = "flaky"    // the first N attempts
	Skips    = "skip"     // no effect
	Panics   = "panic"    // as a bug does
	Slow     = "slow"     // N milliseconds in the database
	Late     = "late"     // the service that is called answers too late, the first time
	Deadlock = "deadlock" // locks the account N first, or last
	Later    = "later"    // is parked until it is N milliseconds old, by the route that parks
	Breaks   = "break"    // makes the transaction fail, and says that all is well
	Exit     = "exit"     // ends the process
	Hang     = "hang"     // never returns
	Hog      = "hog"      // allocates without end
)
