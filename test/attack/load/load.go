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
	// Topics are written to by one producer of each codec, and by a transactional one.
	Topics []string
	// Rate is how many records a second one producer writes.
	Rate int
	// Killers adds records that end the process, or never end.
	Killers bool
}

// Load is what writes. Whoever started it stops it.
type Load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

var codecs = []kgo.CompressionCodec{kgo.NoCompression(), kgo.ZstdCompression(), kgo.Lz4Compression(), kgo.SnappyCompression(), kgo.GzipCompression()}

// every is between two writes of a producer.
const every = 100 * time.Millisecond

// Start begins to write. It ends with ctx, too.
func Start(ctx context.Context, cfg Config) *Load {
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{cancel: cancel}
	for i, topic := range cfg.Topics {
		for j := range 2 {
			n := uint64(i*2 + j)
			p := &producer{
				cfg: cfg, name: fmt.Sprintf("%s-%d", topic, j), transactional: j == 1,
				grammar: grammar{rng: rand.New(rand.NewPCG(cfg.Seed, n)), topic: topic, killers: cfg.Killers && j == 0},
				codec:   codecs[(n+cfg.Seed)%uint64(len(codecs))],
			}
			l.wg.Go(func() { p.run(ctx) })
		}
	}
	return l
}

// Stop returns when nothing is written any more.
func (l *Load) Stop() {
	l.cancel()
	l.wg.Wait()
}
