package dlq

import (
	"context"
	"fmt"
	"time"
)

// ReplayConfig says which letters to replay, and how.
type ReplayConfig struct {
	// Read says which letters.
	Read ReadConfig
	// Group and Route are to whom the letters of other systems are replayed, which know neither: without them such a letter
	// fails. Source is the topic of those that do not say it. Our own letters name all three, and go there. What is no
	// letter of any known format is sent only if the Filter's Formats name FormatUnknown.
	Source, Group, Route string
	// ToRoute sends our own letters to this route instead of the one that they name: for a route that was renamed, or whose
	// work another has taken over. The inbox knows it as another consumer: what the old route had effected it would effect
	// again, so it is for letters of what is dead there. It wants one route in the Filter's Routes, the old one.
	ToRoute string
	// Known says whether a consumer group has a route, as a Directory of its database does: letters for one that it has not
	// fail with *UnknownRouteError. nil: they are sent, and nobody takes them up. Optional.
	Known func(ctx context.Context, group, route string) (bool, error)
	// DryRun sends nothing. Each is called and everything counted as if it had been sent.
	DryRun bool
	// NewID lets letters with the reason id_conflict run as records of their own, under an identity made of where they
	// were first read (NewIDAt). Each then has an effect beside that of the record whose identity it came with: a second
	// charge, a second posting. Without it they are skipped: under their own they would be in conflict again.
	NewID bool
	// MaxReplays is how often a record may be replayed. Letters that were are skipped.
	//
	// Defaults to 10.
	MaxReplays int
	// Skip says of each letter whether, and why, it is not to be sent; "" leaves that to the other rules. Optional.
	Skip func(*Entry) Skip
	// Create makes a replay topic that does not exist, like the consumer that is to read it: as many partitions and replicas
	// as its source, and the retention, room and min.insync.replicas of the dead letters.
	Create bool
	// Timeout is how long the brokers may take to confirm. At least 1 s.
	//
	// Defaults to 30 s.
	Timeout time.Duration
	// Each is told of each letter that matched, in order, once it is known what became of it. Optional.
	Each func(*Entry, Result)
}

// Skip is why a letter that matched was not to be sent.
type Skip string

// The skips.
const (
	// SkipIDConflict is a letter that needs ReplayConfig.NewID.
	SkipIDConflict Skip = "id_conflict"
	// SkipTooOften is one that was replayed ReplayConfig.MaxReplays times.
	SkipTooOften Skip = "replayed_too_often"
	// SkipSuperseded is one whose record has a later letter, which is the one to replay: Entry.Later.
	SkipSuperseded Skip = "superseded"
	// SkipNoLetter is a record that is no letter of a known format.
	SkipNoLetter Skip = "no_dead_letter"
)

// Result is what became of one letter: it was sent, skipped or failed.
type Result struct {
	// Topic is the replay topic, "" if the letter does not say which.
	Topic string
	// Sent says that all in-sync replicas have it, or would have in a dry run.
	Sent bool
	// Skipped is why it was not to be sent, "" if it was.
	Skipped Skip
	// Err is why it could not be sent. Unconfirmed says that it may have arrived all the same.
	Err         error
	Unconfirmed bool
}

// Summary counts a replay. Matched is Sent + Failed + all that is Skipped.
type Summary struct {
	// Snapshot is what was read.
	Snapshot Snapshot
	// Matched is how many letters matched.
	Matched int64
	// Sent is how many are confirmed, ByTopic where.
	Sent    int64
	ByTopic map[string]int64
	// Failed is how many could not be sent, Unconfirmed how many of these may have arrived all the same.
	Failed, Unconfirmed int64
	// Skipped is how many were not to be sent, by why.
	Skipped map[Skip]int64
}

// Replay sends letters to the replay topics of their sources and groups, where the routes that they name take them up
// again: the record with its key, value, headers and identity, and its envelope with one replay more.
//
// It sends what stands in the dead letter topic when it begins, deletes nothing and commits nothing. So it may be killed
// and run again, or run twice at once: the inbox knows each record by its identity and lets it have its effect once.
//
// A letter that cannot be sent is told to Each and the others go on: it is too large, or its replay topic is missing
// (*NoReplayTopicError), not fit or not ours to write to, its route is unknown. Replay ends early, with an error, when ctx ends and when the
// cluster does not answer; the Summary says what was sent until then, and running it again is safe.
func Replay(ctx context.Context, cfg ReplayConfig) (Summary, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return Summary{}, err
	}
	r, err := newReplayer(cfg)
	if err != nil {
		return Summary{}, err
	}
	defer r.close()
	r.sum.Snapshot, err = Read(ctx, cfg.Read, func(e *Entry) error { return r.take(ctx, e) })
	if err == nil {
		err = r.flush(ctx)
	}
	return r.sum, err
}

const (
	defaultMaxReplays    = 10
	defaultReplayTimeout = 30 * time.Second
)

func (c ReplayConfig) withDefaults() ReplayConfig {
	if c.MaxReplays == 0 {
		c.MaxReplays = defaultMaxReplays
	}
	if c.Timeout == 0 {
		c.Timeout = defaultReplayTimeout
	}
	return c
}

func (c ReplayConfig) validate() error {
	if c.MaxReplays < 0 {
		return fmt.Errorf("ReplayConfig.MaxReplays %d is negative", c.MaxReplays)
	}
	if c.ToRoute != "" && len(c.Read.Filter.Routes) != 1 {
		return fmt.Errorf("ReplayConfig.ToRoute %q wants the one route in Filter.Routes whose letters are meant, not %d", c.ToRoute, len(c.Read.Filter.Routes))
	}
	if c.Timeout < time.Second {
		return fmt.Errorf("ReplayConfig.Timeout %s is below 1s, which leaves no room for a retry", c.Timeout)
	}
	return c.Read.validate()
}
