package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Config says what to write.
type Config struct {
	Brokers []string
	// Seed decides what is written; how much of it is a matter of time.
	Seed uint64
	// Topics are written to by two producers each, one of them transactional, and by each of Clients.
	Topics []string
	// Clients are those of other languages. One writes to all topics, in transactions and without.
	Clients []Client
	// Rate is how many records a second one producer writes.
	Rate int
	// Steady keeps the rate also while writes are slow, but for outages.
	Steady bool
	// Killers adds records that end the process, or never end.
	Killers bool
	// Tame leaves out whatever is odd: nearly all records simply have their effect.
	Tame bool
	// Dir is for what clients complain about.
	Dir string
}

// Load is what writes. Whoever started it stops it.
type Load struct {
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	tallies map[string]*tally
}

// Written is what brokers have confirmed of one kind of client.
type Written struct {
	Records int64 `json:"records"`
	// Aborted are those that nobody may see.
	Aborted int64 `json:"aborted"`
	// Failures are writes of which nobody knows what they did.
	Failures int64 `json:"failures,omitempty"`
}

type codec struct {
	name  string
	franz kgo.CompressionCodec
}

var codecs = []codec{
	{"none", kgo.NoCompression()},
	{"zstd", kgo.ZstdCompression()},
	{"lz4", kgo.Lz4Compression()},
	{"snappy", kgo.SnappyCompression()},
	{"gzip", kgo.GzipCompression()},
}

// codec differs from producer to producer, and from seed to seed.
func (cfg Config) codec(n uint64) codec { return codecs[(n+cfg.Seed)%uint64(len(codecs))] }

// killersOf gives a topic's killers, which are no more than two kinds: each is dead after a handful of processes, for each route
// that reads it.
func killersOf(rng *rand.Rand) []string {
	kinds := []string{Exit, Hang, Hog}
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	return kinds[:2]
}

// every is between two writes of a producer.
const every = 100 * time.Millisecond

// franzName is how the report calls the client of this process.
const franzName = "franz-go"

// Start begins to write. It ends with ctx, too.
func Start(ctx context.Context, cfg Config) *Load {
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{cancel: cancel, tallies: map[string]*tally{}}
	for _, p := range append(cfg.own(), cfg.others()...) {
		p.rate, p.steady = cfg.Rate, cfg.Steady
		if l.tallies[p.client] == nil {
			l.tallies[p.client] = &tally{}
		}
		p.tally = l.tallies[p.client]
		l.wg.Go(func() { p.run(ctx) })
	}
	return l
}

// own are the producers of this process.
func (cfg Config) own() (all []*producer) {
	for i, topic := range cfg.Topics {
		for j, endings := range [][]ending{{plain}, {commit, commit, commit, abort}} {
			n, id, killers := uint64(i*2+j), "", []string(nil)
			if j == 1 {
				id = fmt.Sprintf("%s-%d", topic, j)
			} else if cfg.Killers {
				killers = killersOf(cfg.rng(n + 2000))
			}
			all = append(all, &producer{
				client: franzName, endings: endings, rng: cfg.rng(n + 1000),
				grammars: []*grammar{{rng: cfg.rng(n), topic: topic, killers: killers, tame: cfg.Tame}},
				dial:     func() (sender, error) { return dialFranz(cfg.Brokers, cfg.codec(n), id) },
			})
		}
	}
	return all
}

// others are the clients of other languages.
func (cfg Config) others() (all []*producer) {
	for i, c := range cfg.Clients {
		n := uint64(100 * (i + 1))
		p := &producer{client: c.Name, endings: []ending{plain, plain, commit, abort}, rng: cfg.rng(n + 1000)}
		for j, topic := range cfg.Topics {
			p.grammars = append(p.grammars, &grammar{rng: cfg.rng(n + uint64(j)), topic: topic, tame: cfg.Tame})
		}
		id, of := fmt.Sprintf("%s-%s", cfg.Topics[0], c.Name), [2]codec{cfg.codec(uint64(i)), cfg.codec(uint64(i + 2))}
		p.dial = func() (sender, error) { return c.dial(cfg.Brokers, id, cfg.Dir, of) }
		all = append(all, p)
	}
	return all
}

func (cfg Config) rng(n uint64) *rand.Rand { return rand.New(rand.NewPCG(cfg.Seed, n)) }

// Stop returns when nothing is written any more, with what was.
func (l *Load) Stop() map[string]Written {
	l.cancel()
	l.wg.Wait()
	all := map[string]Written{}
	for client, t := range l.tallies {
		all[client] = Written{t.written.Load(), t.aborted.Load(), t.failed.Load()}
	}
	return all
}
