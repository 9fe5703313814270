package consumer

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/internal/pgtest"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/migrations"
	"github.com/headrace/headrace/record"
)

// byOffset is a route of the offset store.
func byOffset(name string) Route[item] {
	r := effectRoute(name)
	r.Store = dedup.ByOffset
	return r
}

func TestStore(t *testing.T) {
	t.Parallel()

	t.Run("AnUnknownOneIsRefused", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		route.Store = 7
		_, err := New(cfg, route)
		require.ErrorContains(t, err, `route "post": Store is store(7), which there is not`)
	})

	t.Run("WarnsOfAnIdentityThatKeepsNoDuplicateAway", func(t *testing.T) {
		t.Parallel()
		cfg, route := good(t)
		cfg.DrainGrace, route.Store = 20*time.Second, dedup.ByOffset
		c, err := New(cfg, route)
		require.NoError(t, err)
		require.Empty(t, warnings(c.cfg, c.specs))
		route.Identity = dedup.DefaultIdentity()
		c, err = New(cfg, route)
		require.NoError(t, err)
		require.Len(t, warnings(c.cfg, c.specs), 1)
		require.Contains(t, warnings(c.cfg, c.specs)[0], "keeps no duplicate away")
	})

	t.Run("OfOffsetsForgetsNothingOfATopicThatKeepsForEver", func(t *testing.T) {
		t.Parallel()
		found := topics{
			"orders":                {Name: "orders", Retention: kafka.Forever},
			"orders.dlq":            {Name: "orders.dlq", Retention: time.Hour},
			"orders.billing.replay": {Name: "orders.billing.replay", Retention: 2 * time.Hour},
		}
		cfg, _ := good(t)
		cfg.InboxRetention = 3 * time.Hour
		c, err := New(cfg, byOffset("post"))
		require.NoError(t, err)
		require.Empty(t, c.retentionProblems(found))
		c, err = New(cfg, effectRoute("post"))
		require.NoError(t, err)
		require.Len(t, c.retentionProblems(found), 1)
		cfg.InboxRetention = 0
		c, err = New(cfg, byOffset("post"))
		require.NoError(t, err)
		require.Equal(t, 27*time.Hour, c.retention(c.specs[0], found), "what may be replayed, and a day")
	})

	t.Run("ThatHasChangedIsRefusedByCheckAndByRun", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.produce(items("first", 3)...)
		first := b.start(b.config(), effectRoute("post"))
		b.outcomes(3)
		first.stop()
		c, err := New(b.config(), byOffset("post"))
		require.NoError(t, err)
		for _, err := range []error{c.Check(t.Context()), c.Run(t.Context())} {
			var start *StartError
			require.ErrorAs(t, err, &start)
			require.Len(t, start.Problems, 1)
			require.Contains(t, start.Problems[0].What, `route "post" has run with the inbox, and its Store is the offset store now`)
			require.Contains(t, start.Problems[0].Fix, "give the route another Name")
		}
	})

	t.Run("OfOffsetsKnowsRedeliveriesAndNoDuplicates", func(t *testing.T) {
		t.Parallel()
		b := newBed(t)
		b.produce(items("a", 40)...)
		b.produce(items("a", 40)...) // the producer's own duplicates
		first := b.start(b.config(), byOffset("post"))
		require.Equal(t, map[record.Outcome]int{record.Effected: 80}, b.outcomes(80))
		first.stop()
		require.Len(t, b.effects("post"), 80)
		require.Zero(t, b.behind())
		var rows int
		require.NoError(t, b.pool.QueryRow(t.Context(), `select count(*) from headrace.inbox`).Scan(&rows))
		require.Zero(t, rows)

		second := b.start(b.config(), byOffset("post"))
		b.produce(items("b", 5)...)
		require.Equal(t, map[record.Outcome]int{record.Effected: 5}, b.outcomes(5))
		second.stop()
	})
}

// TestBegin is about where a topic's partitions begin that have routes of both stores.
func TestBegin(t *testing.T) {
	t.Parallel()
	topicID := uuid.New()
	pool := pgtest.New(t, migrations.Up)
	in, err := dedup.Open(t.Context(), pool, dedup.Config{})
	require.NoError(t, err)
	t.Cleanup(in.Close)
	route := func(name string, store dedup.Store) *dedup.Route {
		rt, err := in.Route(t.Context(), dedup.RouteConfig{Group: "billing", Name: name, Store: store})
		require.NoError(t, err)
		return rt
	}
	knows := func(name string, low int64, epoch int) {
		_, err := pool.Exec(t.Context(), `insert into headrace.offsets (consumer_id, topic_id, part, low, leader_epoch)
			select id, $1, 0, $2, $3 from headrace.consumers where route = $4`, topicID, low, epoch, name)
		require.NoError(t, err)
	}
	ahead, behind, fresh, inbox := route("ahead", dedup.ByOffset), route("behind", dedup.ByOffset), route("fresh", dedup.ByOffset), route("inbox", dedup.ByID)
	knows("ahead", 70, 5)
	knows("behind", 30, 2)
	asked := kafka.Start{Topic: "orders", TopicID: topicID, Partition: 0, Offset: 10, Epoch: 1}
	is := func(offset int64, epoch int32, end int64) []kafka.Start {
		return []kafka.Start{{Topic: "orders", TopicID: topicID, Partition: 0, Offset: offset, Epoch: epoch, End: end}}
	}

	for name, tc := range map[string]struct {
		routes []*dedup.Route
		want   []kafka.Start
	}{
		"IsWhereItsRouteIs":                  {[]*dedup.Route{ahead}, is(70, 5, 70)},
		"IsWhereTheLastOfSeveralRoutesIs":    {[]*dedup.Route{ahead, behind}, is(30, 2, 70)},
		"IsNotMovedByAnInbox":                {[]*dedup.Route{ahead, inbox}, is(-1, -1, 70)},
		"IsNotMovedByAnInboxBeforeIt":        {[]*dedup.Route{inbox, ahead}, is(-1, -1, 70)},
		"IsNotMovedByARouteThatKnowsNothing": {[]*dedup.Route{fresh, behind}, is(-1, -1, 30)},
		"IsNobodysOfInboxesAlone":            {[]*dedup.Route{inbox}, nil},
		"IsNobodysOfATopicWithoutRoutes":     {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &engine{inboxes: map[string][]*dedup.Route{"orders": tc.routes}}
			kept, err := e.begin(t.Context(), []kafka.Start{asked})
			require.NoError(t, err)
			require.Equal(t, tc.want, kept)
		})
	}

	t.Run("IsUnknownWithoutATopicID", func(t *testing.T) {
		t.Parallel()
		e := &engine{inboxes: map[string][]*dedup.Route{"orders": {ahead}}}
		at := asked
		at.TopicID = uuid.Nil
		kept, err := e.begin(t.Context(), []kafka.Start{at})
		require.NoError(t, err)
		require.EqualValues(t, -1, kept[0].Offset)
	})

	t.Run("IsAnErrorWithoutADatabase", func(t *testing.T) {
		t.Parallel()
		e := &engine{inboxes: map[string][]*dedup.Route{"orders": {ahead}}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := e.begin(ctx, slices.Clone([]kafka.Start{asked}))
		require.Error(t, err)
	})
}
