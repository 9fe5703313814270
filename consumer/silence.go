package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/headrace/headrace/kafka"
)

// startTimeout bounds what New cannot know: a broker or a database that does not answer is an error after it, and not
// a process that hangs. One that answers slowly, as a busy cluster that is to create many topics does, may take longer in all.
const startTimeout = 30 * time.Second

// errSilent is why a check ended that nobody answered.
var errSilent = fmt.Errorf("no answer within %s", startTimeout)

// untilSilent gives a context that ends with errSilent once nothing was heard for startTimeout.
func untilSilent(ctx context.Context) (until context.Context, heard, stop func()) {
	until, cancel := context.WithCancelCause(ctx)
	t := time.AfterFunc(startTimeout, func() { cancel(errSilent) })
	heard = func() { t.Reset(startTimeout) }
	return until, heard, func() { t.Stop(); cancel(nil) }
}

// patient is the cluster as a start asks it: each answer begins startTimeout anew. It is a dlq.Topics.
type patient struct {
	admin *kafka.Admin
	heard func()
}

func (p patient) Topic(ctx context.Context, name string) (kafka.Topic, error) {
	defer p.heard()
	return p.admin.Topic(ctx, name)
}

func (p patient) CreateTopic(ctx context.Context, spec kafka.TopicSpec) error {
	defer p.heard()
	return p.admin.CreateTopic(ctx, spec)
}
