package dedup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/internal/routename"
	"github.com/headrace/headrace/record"
)

// Config is an inbox's. The zero value is usable.
type Config struct {
	// Writers is how many transactions of one route may run side by side. A route whose records all write the same few
	// rows is better off with 1 (see RouteConfig.Writers).
	//
	// Defaults to 4.
	Writers int
	// MaxConns bounds the connections of the inbox's own pool, over all its routes. A writer waits for one.
	//
	// Defaults to 2 × Writers + 4.
	MaxConns int
	// MaxBatch is the most records that share a transaction. Where handlers are slow it has fewer: about as many as get
	// through in MaxBatchTime.
	//
	// Defaults to 500.
	MaxBatch int
	// MaxBatchTime is for how long the handlers of a transaction may run before it begins no further record: what is done
	// is committed, the rest comes in the next one. It cuts between records only.
	//
	// Defaults to 200ms.
	MaxBatchTime time.Duration
	// HardGrace is how long after its AttemptTimeout a handler may ignore its context before its connection is closed
	// and the goroutine reported as stuck.
	//
	// Defaults to 5s.
	HardGrace time.Duration
	// CommitTimeout is how long a COMMIT may take before its connection is closed, its outcome counts as unknown and the
	// inbox is asked. With a synchronous standby let it be longer than that may be away: closing a connection makes the
	// driver cancel what it waits for, and a server that is cancelled there commits without its standby.
	//
	// Defaults to 5s.
	CommitTimeout time.Duration
	// SweepInterval is how often the rows of a route that are older than its Retention are looked for. All processes
	// together make one pass in this time.
	//
	// Defaults to 1h.
	SweepInterval time.Duration
	// Classifier says what the errors of handlers mean, where a route has none of its own.
	//
	// Defaults to the built-in rules.
	Classifier *fault.Classifier
	// ApplicationName is what the sessions of the inbox's own pool are called in pg_stat_activity, unless the pool that it is
	// opened from names its own.
	//
	// Defaults to "headrace".
	ApplicationName string
	// Hooks are told of attempts, answers and groups. Defaults to none.
	Hooks *record.Hooks
	// Logger gets what only a developer wants to know. Defaults to slog.Default().
	Logger *slog.Logger

	vouchEvery time.Duration // tests have processes that died, and yet run
}

func (c Config) withDefaults() Config {
	c.Writers = or(c.Writers, 4)
	c.MaxConns = or(c.MaxConns, 2*c.Writers+4)
	c.MaxBatch = or(c.MaxBatch, 500)
	c.MaxBatchTime = or(c.MaxBatchTime, 200*time.Millisecond)
	c.HardGrace = or(c.HardGrace, 5*time.Second)
	c.CommitTimeout = or(c.CommitTimeout, 5*time.Second)
	c.SweepInterval = or(c.SweepInterval, time.Hour)
	c.Classifier = or(c.Classifier, &fault.Classifier{})
	c.ApplicationName = or(c.ApplicationName, "headrace")
	c.Hooks = or(c.Hooks, &record.Hooks{})
	c.Logger = or(c.Logger, slog.Default())
	c.vouchEvery = or(c.vouchEvery, vouchEvery)
	return c
}

func (c Config) validate() error {
	switch {
	case c.Writers < 0, c.MaxConns < 0, c.MaxBatch < 0:
		return fmt.Errorf("inbox: Writers (%d), MaxConns (%d) and MaxBatch (%d) must not be negative",
			c.Writers, c.MaxConns, c.MaxBatch)
	case c.MaxBatchTime < 0, c.HardGrace < 0, c.CommitTimeout < 0, c.SweepInterval < 0:
		return fmt.Errorf("inbox: MaxBatchTime (%s), HardGrace (%s), CommitTimeout (%s) and SweepInterval (%s) must not be negative",
			c.MaxBatchTime, c.HardGrace, c.CommitTimeout, c.SweepInterval)
	case c.MaxConns > 0 && c.MaxConns < 2:
		return fmt.Errorf("inbox: MaxConns (%d) must leave a connection for dead rows and the sweep beside a writer's: at least 2",
			c.MaxConns)
	}
	return nil
}

// MaxAttemptTimeout is the most that RouteConfig.AttemptTimeout may be, nearly 25 days: it is a time limit of the
// transaction too, with a reserve, and Postgres keeps those in 31 bits of milliseconds.
const MaxAttemptTimeout = math.MaxInt32*time.Millisecond - idleReserve

// RouteConfig is one route's.
type RouteConfig struct {
	// Group is the consumer group and Name the route: together they are under what the inbox remembers. Both are
	// required and permanent. Name has no '/', spaces or control characters.
	Group, Name string
	// Store is where the route remembers its records. It is permanent: another one is refused (ErrStoreChanged). ByOffset
	// needs to know the topics' ids, and runs read committed only.
	//
	// Defaults to ByID.
	Store Store
	// AttemptTimeout bounds one run of the handler. It starts right before that run, not in the queue. At most
	// MaxAttemptTimeout.
	//
	// Defaults to 5s.
	AttemptTimeout time.Duration
	// CallTimeout bounds one call out that Enter guards; Config.HardGrace comes on top. Defaults to 10s.
	CallTimeout time.Duration
	// Writers is how many transactions of this route may run side by side. Defaults to Config.Writers.
	Writers int
	// MaxBatch is the most records that share a transaction. Defaults to Config.MaxBatch.
	MaxBatch int
	// Solo gives each record a transaction of its own. Its handler may then use what ends with that and would leak to
	// other records otherwise: SET LOCAL, set_config(…, true), SET CONSTRAINTS, cursors, CREATE TEMP … ON COMMIT DROP. It
	// costs most of the throughput.
	Solo bool
	// Isolation is the transactions' isolation level. Any other than the default implies Solo.
	//
	// Defaults to read committed, whatever the database's default is.
	Isolation pgx.TxIsoLevel
	// Classifier says what the errors of the handler mean: it names an attempt's failure for Hooks.OnAttempt, and finds
	// what would be ambiguous elsewhere and is not here, where nothing commits before the inbox does. Give it the rules
	// of whoever decides about the record afterwards. Defaults to Config.Classifier.
	Classifier *fault.Classifier
	// Retention is how long the inbox remembers a record. It must be longer than the source topic, its dead letters and
	// a replay keep one, or a redelivery becomes a second effect. Defaults to 0: for ever.
	Retention time.Duration
	// Horizon says what of the route may still be redelivered: the oldest timestamp of a record whose offset is not
	// committed yet, over all partitions and members of the consumer group, or the zero time when there is none. Rows
	// written after it, or within the hour before it, are never swept, whatever their age. An error skips the sweep.
	// Required with Retention.
	Horizon func(ctx context.Context) (time.Time, error)
	// ParkedKey names the line in which r would be parked (parking.KeyID). While records of it are, others of the line fail
	// with ErrParked instead of running, unless the inbox knows them; those that parking delivers (Record.Parked) run.
	// ByOffset cannot have it: what is behind its offset is done. nil: the route does not park.
	//
	// Defaults to nil.
	ParkedKey func(r *record.Record) int64
	// Around is called around each run of the handler, a tracer's place: it may replace the context by one derived from
	// it, and the function it returns gets the run's error. Defaults to none.
	Around func(ctx context.Context, r *record.Record) (context.Context, func(error))
}

func (c RouteConfig) withDefaults(in Config) RouteConfig {
	c.AttemptTimeout = or(c.AttemptTimeout, 5*time.Second)
	c.CallTimeout = or(c.CallTimeout, 10*time.Second)
	c.Writers = or(c.Writers, in.Writers)
	c.MaxBatch = or(c.MaxBatch, in.MaxBatch)
	c.Classifier = or(c.Classifier, in.Classifier)
	c.Isolation = or(c.Isolation, pgx.ReadCommitted)
	if c.Isolation != pgx.ReadCommitted {
		c.Solo = true
	}
	if c.Solo {
		c.MaxBatch = 1
	}
	return c
}

func (c RouteConfig) validate() error {
	switch {
	case c.Group == "" || c.Name == "":
		return fmt.Errorf("route: Group (%q) and Name (%q) are required: the inbox remembers by them", c.Group, c.Name)
	case c.AttemptTimeout < 0, c.CallTimeout < 0, c.Writers < 0, c.MaxBatch < 0, c.Retention < 0:
		return fmt.Errorf("route %s: AttemptTimeout (%s), CallTimeout (%s), Writers (%d), MaxBatch (%d) and Retention (%s) must not be negative",
			c.Name, c.AttemptTimeout, c.CallTimeout, c.Writers, c.MaxBatch, c.Retention)
	case c.AttemptTimeout > MaxAttemptTimeout:
		return fmt.Errorf("route %s: AttemptTimeout (%s) is above %s, which Postgres can keep as a time limit",
			c.Name, c.AttemptTimeout, MaxAttemptTimeout)
	case c.Store > ByOffset:
		return fmt.Errorf("route %s: there is no %s", c.Name, c.Store)
	case c.Store == ByOffset && c.ParkedKey != nil:
		return fmt.Errorf("route %s: a route of the offset store cannot park: a parked record would be behind its offset, and done", c.Name)
	case c.Store == ByOffset && c.Isolation != "" && c.Isolation != pgx.ReadCommitted:
		return fmt.Errorf("route %s: isolation level %q: the offset store runs read committed only: on another level each group "+
			"would fail that meets the mark of the one before it", c.Name, c.Isolation)
	case c.Retention > 0 && c.Horizon == nil:
		return errors.New("route " + c.Name + ": Retention needs Horizon, which says what may still be redelivered")
	}
	if wrong, instead := routename.Check(c.Name); wrong != "" {
		return fmt.Errorf("route %q %s; name it differently, for example %q", c.Name, wrong, instead)
	}
	switch c.Isolation {
	case "", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
		return nil
	}
	return fmt.Errorf("route %s: isolation level %q: only read committed, repeatable read and serializable", c.Name, c.Isolation)
}

// or gives v unless it is the zero value.
func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
