package consumer

import (
	"context"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/middleware"
)

type placed struct{ Amount int }

func apply(context.Context, pgx.Tx, Event[placed]) error { return nil }

// lazyPool is a pool that never connects.
func lazyPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func good(t *testing.T) (Config, Route[placed]) {
	t.Helper()
	return Config{Brokers: []string{"127.0.0.1:1"}, Group: "billing", DB: lazyPool(t)},
		Route[placed]{Name: "post", Topic: "orders", Apply: apply}
}

func TestNew(t *testing.T) {
	t.Parallel()

	t.Run("AcceptsTheLeastConfiguration", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		c, err := New(cfg, route)
		require.NoError(t, err)
		require.Len(t, c.Plan(), 2)
	})

	t.Run("TellsAllProblemsAtOnce", func(t *testing.T) {
		t.Parallel()
		_, err := New(Config{}, Route[placed]{})
		var start *StartError
		require.ErrorAs(t, err, &start)
		require.Len(t, start.Problems, 6)
		for _, p := range start.Problems {
			require.NotEmpty(t, p.What)
			require.NotEmpty(t, p.Fix, p.What)
		}
	})

	t.Run("RefusesNoRoutes", func(t *testing.T) {
		t.Parallel()
		cfg, _ := good(t)
		_, err := New(cfg)
		require.ErrorContains(t, err, "there are no routes")
	})

	t.Run("RefusesRoutesThatAreNil", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		_, err := New(cfg, nil, route, (*Route[placed])(nil))
		require.ErrorContains(t, err, "route 1 of 3 is nil")
		require.ErrorContains(t, err, "route 3 of 3 is nil")
		require.ErrorContains(t, err, "2 problems:")
	})

	t.Run("ComesToAnEndHoweverManyAttempts", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		route.Attempts = 100_000
		_, err := New(cfg, route)
		require.ErrorContains(t, err, "fix: lower Attempts to 22, or raise MaxPollInterval")
		route.Attempts = 22
		_, err = New(cfg, route)
		require.NoError(t, err)
		route.Attempts = math.MaxInt
		_, err = New(cfg, route)
		require.ErrorContains(t, err, "exceeds MaxPollInterval 5m")
	})

	t.Run("RefusesTwoRoutesOfOneName", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		other := route
		other.Topic = "returns"
		_, err := New(cfg, route, other)
		require.ErrorContains(t, err, `two routes are named "post", on topics "orders" and "returns"`)
	})

	t.Run("RefusesOneFloodGuardForTwoRoutesOnATopic", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		route.Flood = middleware.NewFloodGuard(middleware.FloodConfig{})
		other := route
		other.Name = "ship"
		_, err := New(cfg, route, other)
		require.ErrorContains(t, err, `routes "post" and "ship" on topic "orders" have one Flood`)
	})

	t.Run("RefusesDeadLettersThatComeBackByWayOfAnotherRoute", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		back := Route[placed]{Name: "repair", Topic: "orders.dlq", Apply: apply, Options: Options{DeadLetterTopic: "orders"}}
		_, err := New(cfg, route, back)
		require.ErrorContains(t, err, `the dead letters of route "post" go to "orders.dlq" and from there back`)
	})

	t.Run("TakesARouteOnADeadLetterTopicWithOneOfItsOwn", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		last := Route[placed]{Name: "repair", Topic: "orders.dlq", Apply: apply, Options: Options{DeadLetterTopic: "orders.lost"}}
		_, err := New(cfg, route, last)
		require.NoError(t, err)
	})

	t.Run("RefusesARegistryThatHasAConsumerAlready", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		first, err := New(cfg, route)
		require.NoError(t, err)
		cfg.Registry = first.cfg.Registry
		_, err = New(cfg, route)
		require.ErrorContains(t, err, "the metrics cannot be registered")
	})
}

// TestNew_Refuses spoils one thing each time.
func TestNew_Refuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(*Config, *Route[placed])
		want  string
	}{
		"NoBrokers":    {func(c *Config, _ *Route[placed]) { c.Brokers = nil }, "Brokers is empty"},
		"BrokerNoPort": {func(c *Config, _ *Route[placed]) { c.Brokers = []string{"kafka"} }, `Brokers has "kafka"`},
		"BrokerWithAScheme": {
			func(c *Config, _ *Route[placed]) { c.Brokers = []string{"kafka://localhost"} },
			`Brokers has "kafka://localhost", which has a scheme` + "\n    fix: write host:port",
		},
		"BrokersInOneString": {
			func(c *Config, _ *Route[placed]) { c.Brokers = []string{"a:9092,b:9092"} },
			`Brokers has "a:9092,b:9092", which is more than one address`,
		},
		"BrokerWithoutANumber": {
			func(c *Config, _ *Route[placed]) { c.Brokers = []string{"kafka:kafka"} }, `which has "kafka" for a port`,
		},
		"BrokerWithAPortThatNobodyHas": {
			func(c *Config, _ *Route[placed]) { c.Brokers = []string{"kafka:90921"} }, `which has "90921" for a port`,
		},
		"TopicThatKafkaCannotHave": {
			func(_ *Config, r *Route[placed]) { r.Topic = "or ders" },
			`route "post": Topic is "or ders", which has a character that Kafka does not take in a topic's name` +
				"\n    fix: name a topic that Kafka can have: at most 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
		},
		"TopicThatIsADot": {
			func(_ *Config, r *Route[placed]) { r.Topic = "." }, `Topic is ".", which Kafka keeps for itself`,
		},
		"TopicThatIsTwoDots": {
			func(_ *Config, r *Route[placed]) { r.Topic = ".." }, `Topic is "..", which Kafka keeps for itself`,
		},
		"TopicWhoseNameIsTooLong": {
			func(_ *Config, r *Route[placed]) { r.Topic = strings.Repeat("t", 250) }, "which has 250 characters, Kafka takes 249",
		},
		"TopicWhoseNameIsTooLongWithItsSuffixes": {
			func(_ *Config, r *Route[placed]) { r.Topic = strings.Repeat("t", 249) },
			"has 264 characters, Kafka takes 249\n    fix: shorten the names of the topic and the Group together by 15",
		},
		"DeadLetterTopicThatKafkaCannotHave": {
			func(_ *Config, r *Route[placed]) { r.DeadLetterTopic = "orders/dlq" },
			`route "post": DeadLetterTopic is "orders/dlq", which has a character`,
		},
		"NoGroup":          {func(c *Config, _ *Route[placed]) { c.Group = "" }, "Group is empty"},
		"NoDatabase":       {func(c *Config, _ *Route[placed]) { c.DB = nil }, "DB is nil"},
		"NoName":           {func(_ *Config, r *Route[placed]) { r.Name = "" }, "a route on topic \"orders\" has no Name\n    fix: set Route.Name, once and for ever"},
		"NoTopic":          {func(_ *Config, r *Route[placed]) { r.Topic = "" }, `route "post" has no Topic`},
		"NilResolver":      {func(_ *Config, r *Route[placed]) { r.Identity = []dedup.Resolver{nil} }, `route "post": Identity[0] is nil`},
		"NilRule":          {func(_ *Config, r *Route[placed]) { r.Rules = []fault.Rule{nil} }, `route "post": Rules[0] is nil`},
		"NoApply":          {func(_ *Config, r *Route[placed]) { r.Apply = nil }, `route "post" has no Apply`},
		"NegativeAttempts": {func(_ *Config, r *Route[placed]) { r.Attempts = -1 }, `route "post": Attempts is -1`},
		"NegativeTimeout":  {func(_ *Config, r *Route[placed]) { r.AttemptTimeout = -time.Second }, `route "post": AttemptTimeout is -1s`},
		"NegativeWriters":  {func(c *Config, _ *Route[placed]) { c.Writers = -2 }, "Writers is -2"},
		"NegativeGrace":    {func(c *Config, _ *Route[placed]) { c.DrainGrace = -1 }, "DrainGrace is -1ns"},
		"BaseAboveCap": {
			func(_ *Config, r *Route[placed]) { r.BackoffBase = 20 * time.Second }, "BackoffBase 20s is above BackoffCap 10s",
		},
		"NegativeNormalTime": {func(_ *Config, r *Route[placed]) { r.NormalTime = -2 }, `route "post": NormalTime is -2ns`},
		"ANormalTimeThatNoAttemptHas": {
			func(_ *Config, r *Route[placed]) { r.NormalTime = 6 * time.Second },
			`route "post": NormalTime 6s is more than an attempt may take, 5s`,
		},
		"RareHeartbeat": {
			func(c *Config, _ *Route[placed]) { c.HeartbeatInterval = 20 * time.Second },
			"HeartbeatInterval 20s does not fit three times into SessionTimeout 45s",
		},
		"TooFewInFlight": {
			func(c *Config, _ *Route[placed]) { c.OnOffsetLoss = 3 }, "OnOffsetLoss is OffsetLoss(3)",
		},
		"MaxInFlightBelowAMessage": {
			func(c *Config, _ *Route[placed]) { c.MaxInFlight = 100 }, "MaxInFlight 100 is below the largest MaxBatch 500",
		},
		"OwnInput": {
			func(_ *Config, r *Route[placed]) { r.DeadLetterTopic = "orders" },
			`the dead letters of route "post" go to "orders" and from there back to its topic "orders"`,
		},
		"DeadLetterTopicWithoutItsOwn": {
			func(_ *Config, r *Route[placed]) { r.Topic = "orders.dlq" },
			`route "post" consumes "orders.dlq", itself a dead letter topic, and has no DeadLetterTopic`,
		},
		"NegativeRetention": {
			func(c *Config, _ *Route[placed]) { c.InboxRetention = -time.Hour }, "InboxRetention is -1h",
		},
		"GroupWithAZeroByte": {func(c *Config, _ *Route[placed]) { c.Group = "a\x00b" }, `Group is "a\x00b", which Postgres cannot store`},
		"ReplayTopicWhoseNameIsTooLong": {
			func(c *Config, _ *Route[placed]) { c.Group = strings.Repeat("g", 240) },
			"has 254 characters, Kafka takes 249\n    fix: shorten the names of the topic and the Group together by 5",
		},
		"RouteOnTheGroupsOwnReplayTopic": {
			func(_ *Config, r *Route[placed]) { r.Topic = "returns.billing.replay" },
			`route "post" consumes "returns.billing.replay", a replay topic of its own consumer group`,
		},
		"DeadLettersIntoAReplayTopic": {
			func(_ *Config, r *Route[placed]) { r.DeadLetterTopic = "orders.billing.replay" },
			"what dies would come back at once, for ever",
		},
		"NameThatIsNotUTF8": {
			func(_ *Config, r *Route[placed]) { r.Name = "a\xffb" },
			`the Name of a route on topic "orders" is "a\xffb", which Postgres cannot store`,
		},
		"NameThatNoCommandCouldTake": {
			func(_ *Config, r *Route[placed]) { r.Name = "a b/c" },
			`the Name of a route on topic "orders" is "a b/c", which has ' ' in it: '/', spaces and control characters cannot be ` +
				"told apart where group/route is written\n    fix: name it differently, for example \"a-b-c\"",
		},
		"AttemptOfANanosecond": {
			func(_ *Config, r *Route[placed]) { r.AttemptTimeout = 30 }, `route "post": AttemptTimeout 30ns is below 10ms`,
		},
		"AttemptThatPostgresCannotCount": {
			func(c *Config, r *Route[placed]) {
				r.Attempts, r.AttemptTimeout, c.MaxPollInterval = 1, 30*24*time.Hour, math.MaxInt64
			}, `route "post": AttemptTimeout 720h is above 596h31m18.647s`,
		},
		"HeartbeatOfANanosecond": {
			func(c *Config, _ *Route[placed]) { c.HeartbeatInterval = 1 }, "HeartbeatInterval 1ns is below 10ms",
		},
		"CommitOfANanosecond": {
			func(c *Config, _ *Route[placed]) { c.CommitInterval = 1 }, "CommitInterval 1ns is below 10ms",
		},
		"DeadLetterWithoutARetry": {
			func(c *Config, _ *Route[placed]) { c.DeadLetterTimeout = time.Millisecond }, "DeadLetterTimeout 1ms is below 1s",
		},
		"SessionThatKafkaCannotCount": {
			func(c *Config, _ *Route[placed]) { c.SessionTimeout = math.MaxInt64 }, "is above 596h31m23.647s",
		},
		"RebalanceThatKafkaCannotCount": {
			func(c *Config, _ *Route[placed]) { c.RebalanceTimeout = 30 * 24 * time.Hour },
			"RebalanceTimeout 720h is above 596h31m23.647s",
		},
		"BudgetThatDoesNotFit": {
			func(_ *Config, r *Route[placed]) { r.AttemptTimeout = 2 * time.Minute },
			"exceeds MaxPollInterval 5m by 1m15.6s",
		},
		"RebalanceThatDoesNotFit": {
			func(c *Config, _ *Route[placed]) { c.DrainGrace = time.Minute }, "exceeds RebalanceTimeout 1m by 12s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, route := good(t)
			tc.spoil(&cfg, &route)
			_, err := New(cfg, route)
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "1 problem:", "one mistake, one problem")
			require.ErrorContains(t, err, "fix: ")
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	s := spec{name: "slow", options: Options{AttemptTimeout: 6 * time.Second}.withDefaults(defaultMaxBatch)}
	require.Len(t, warnings(Config{}.withDefaults(), []spec{s}), 1)
	s.options.AttemptTimeout = 5 * time.Second
	require.Empty(t, warnings(Config{}.withDefaults(), []spec{s}))
}

func TestRetention(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	c := func(t *testing.T, retention time.Duration) *Consumer {
		t.Helper()
		cfg, route := good(t)
		cfg.InboxRetention = retention
		made, err := New(cfg, route)
		require.NoError(t, err)
		return made
	}
	found := topics{
		"orders":     {Name: "orders", Retention: 7 * day, CleanupPolicy: "delete"},
		"orders.dlq": {Name: "orders.dlq", Retention: 14 * day, CleanupPolicy: "delete"},
	}

	t.Run("IsADayMoreThanTheLongestOfTopicAndDeadLetterTopic", func(t *testing.T) {
		t.Parallel()
		made := c(t, 0)
		require.Equal(t, 15*day, made.retention(made.specs[0], found))
		require.Empty(t, made.retentionProblems(found))
	})

	// Replayed and effected -> two weeks later replayed again -> two weeks later delivered again.
	t.Run("CountsAReplayOnTopOfTheDeadLetterTopic", func(t *testing.T) {
		t.Parallel()
		replayed := topics{"orders.billing.replay": {Name: "orders.billing.replay", Retention: 20 * day, CleanupPolicy: "delete"}}
		maps.Copy(replayed, found)
		made := c(t, 0)
		require.Equal(t, 35*day, made.retention(made.specs[0], replayed))
		problems := c(t, 33*day).retentionProblems(replayed)
		require.Len(t, problems, 1)
		require.Contains(t, problems[0].What,
			`InboxRetention 792h is shorter than what topics "orders.dlq" and, after a replay, "orders.billing.replay" keep, 816h`)
		require.Empty(t, c(t, 34*day).retentionProblems(replayed))
	})

	t.Run("IsForEverWhereATopicKeepsItsRecordsForEver", func(t *testing.T) {
		t.Parallel()
		for _, kept := range []kafka.Topic{
			{Retention: kafka.Forever, CleanupPolicy: "delete"},
			{Retention: 7 * day, CleanupPolicy: "compact"},
		} {
			made := c(t, 0)
			require.Zero(t, made.retention(made.specs[0], topics{"orders": kept, "orders.dlq": found["orders.dlq"]}))
		}
	})

	t.Run("RefusesOneThatIsShorterThanATopics", func(t *testing.T) {
		t.Parallel()
		problems := c(t, 8*day).retentionProblems(found)
		require.Len(t, problems, 1)
		require.Contains(t, problems[0].What, `InboxRetention 192h is shorter than what topic "orders.dlq" keeps, 336h`)
		require.Contains(t, problems[0].Fix, "raise InboxRetention to 336h")
	})

	t.Run("TakesOneThatIsAsLong", func(t *testing.T) {
		t.Parallel()
		made := c(t, 14*day)
		require.Empty(t, made.retentionProblems(found))
		require.Equal(t, 14*day, made.retention(made.specs[0], found))
	})

	t.Run("ForeverNeverForgets", func(t *testing.T) {
		t.Parallel()
		made := c(t, kafka.Forever)
		require.Empty(t, made.retentionProblems(found))
		require.Zero(t, made.retention(made.specs[0], found))
	})
}

func TestMaxBatchFollowsTheKind(t *testing.T) {
	t.Parallel()
	small, large := Options{}, Options{MaxBatch: 7}
	require.Equal(t, 500, Route[item]{Options: small}.spec().options.MaxBatch)
	require.Equal(t, 2000, QueueRoute[item]{Options: small}.spec().options.MaxBatch)
	require.Equal(t, 2000, BatchRoute[item]{Options: small}.spec().options.MaxBatch)
	require.Equal(t, 7, BatchRoute[item]{Options: large}.spec().options.MaxBatch)
}
