package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/headrace/headrace/dedup"
	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/internal/hint"
	"github.com/headrace/headrace/kafka"
	"github.com/headrace/headrace/migrations"
)

// Check asks broker and database for everything that Run would refuse to start with, and changes nothing. All problems
// come at once, in a *StartError; nil means that Run would start now. What Run would create (Migrate,
// CreateDeadLetterTopics) is no problem.
func (c *Consumer) Check(ctx context.Context) error {
	_, problems := c.lookAtBroker(ctx, false)
	return refuse(append(problems, c.lookAtDatabase(ctx, c.checkSchema)...))
}

// prepare is Check that also creates what it may, opens the inbox, and gives what it learned of the topics.
func (c *Consumer) prepare(ctx context.Context, open func(context.Context) error) (topics, error) {
	ts, problems := c.lookAtBroker(ctx, true)
	return ts, refuse(append(problems, c.lookAtDatabase(ctx, open)...))
}

// topics are the source, dead letter and replay topics that exist, by name.
type topics map[string]kafka.Topic

// lookAtBroker finds what is wrong with the topics. With create it creates those that are missing and that it may.
func (c *Consumer) lookAtBroker(ctx context.Context, create bool) (topics, []Problem) {
	admin, err := kafka.NewAdmin(c.cfg.client())
	if err != nil {
		return nil, []Problem{{What: "the Kafka client cannot be made", Err: err}}
	}
	defer admin.Close()
	asked := ctx
	ctx, heard, stop := untilSilent(ctx)
	defer stop()
	cluster := patient{admin, heard}
	found := topics{}
	var ps []Problem
	for _, name := range c.sources() {
		switch t, err := cluster.Topic(ctx, name); {
		case errors.Is(err, kafka.ErrUnknownTopic):
			ps = append(ps, c.unknownTopic(name, err))
		case err != nil:
			return nil, append(ps, c.silentBroker(asked, admin, name, because(ctx, err)))
		default:
			found[name] = t
		}
	}
	letters := c.checkDeadLetters
	if create {
		letters = c.createDeadLetters
	}
	ps = append(ps, letters(ctx, cluster, found)...)
	c.lookUpLetters(ctx, cluster, found)
	// Not made after dead letter topics that are to be changed first: they would be made after the wrong ones.
	ps = append(ps, c.lookAtReplayTopics(ctx, cluster, found, create && len(ps) == 0)...)
	return found, append(append(ps, c.retentionProblems(found)...), c.keyProblems(found)...)
}

// lookUpLetters adds the dead letter topics that exist. What is wrong with the others is known already.
func (c *Consumer) lookUpLetters(ctx context.Context, cluster dlq.Topics, found topics) {
	for _, s := range c.specs {
		if t, err := cluster.Topic(ctx, s.options.DeadLetterTopic); err == nil {
			found[s.options.DeadLetterTopic] = t
		}
	}
}

func (c *Consumer) unknownTopic(name string, err error) Problem {
	return Problem{
		What: fmt.Sprintf("topic %q of route %s", name, strings.Join(c.routesOf(name), ", ")), Err: err,
		Fix: "create it, correct Route.Topic, or allow this user to describe it",
	}
}

// silentBroker is a cluster that does not answer a question about the topic. Half a minute of silence is all that the
// client has to tell after it has tried again for so long, so it is asked once more for what was wrong.
func (c *Consumer) silentBroker(ctx context.Context, admin *kafka.Admin, name string, err error) Problem {
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		return Problem{
			What: fmt.Sprintf("topic %q of route %s", name, strings.Join(c.routesOf(name), ", ")), Err: err,
			Fix: "allow this user Read, Describe and DescribeConfigs on it (docs/security.md)",
		}
	}
	if errors.Is(err, errSilent) {
		within, cancel := context.WithTimeout(ctx, lastQuestion)
		defer cancel()
		if why := admin.Ping(within); why != nil && within.Err() == nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
	}
	return Problem{
		What: fmt.Sprintf("the brokers %s cannot be asked", strings.Join(c.cfg.Brokers, ", ")),
		Err:  err, Fix: hint.Brokers(c.cfg.client(), err, byFields),
	}
}

// lastQuestion is how long somebody who was silent may take to say what is wrong.
const lastQuestion = 5 * time.Second

// byFields is how whoever writes a program configures a client.
var byFields = hint.Words{
	Brokers: "Brokers", AddTLS: "set TLS", DropTLS: "leave TLS nil", CA: "have TLS trust it (CAFile of kafka.Security)",
	Certificate: "TLS (CertFile and KeyFile of kafka.Security)",
	AddLogin:    "set SASL", DropLogin: "leave SASL nil",
	Login: "user, password and mechanism of SASL", Mechanism: "that of SASL",
}

// because prefers the reason for which ctx ended to the error of whatever noticed it.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// letterPlans are the pairs of source and dead letter topic, each once, whose source exists.
func (c *Consumer) letterPlans(found topics, create bool) []dlq.Plan {
	seen := map[[2]string]bool{}
	var plans []dlq.Plan
	for _, s := range c.specs {
		pair := [2]string{s.topic, s.options.DeadLetterTopic}
		if _, exists := found[s.topic]; exists && !seen[pair] {
			seen[pair] = true
			plans = append(plans, dlq.Plan{Source: s.topic, Topic: s.options.DeadLetterTopic, Create: create})
		}
	}
	return plans
}

// createDeadLetters checks the dead letter topics, and creates them if it may.
func (c *Consumer) createDeadLetters(ctx context.Context, cluster dlq.Topics, found topics) []Problem {
	return letterProblems(ctx, dlq.Check(ctx, cluster, c.letterPlans(found, c.cfg.CreateDeadLetterTopics)...))
}

// checkDeadLetters creates nothing: a missing topic that Run would create is left out.
func (c *Consumer) checkDeadLetters(ctx context.Context, cluster dlq.Topics, found topics) []Problem {
	var plans []dlq.Plan
	for _, p := range c.letterPlans(found, false) {
		_, err := cluster.Topic(ctx, p.Topic)
		if errors.Is(err, kafka.ErrUnknownTopic) && c.cfg.CreateDeadLetterTopics {
			continue
		}
		plans = append(plans, p)
	}
	return letterProblems(ctx, dlq.Check(ctx, cluster, plans...))
}

func letterProblems(ctx context.Context, err error) []Problem {
	if err == nil {
		return nil
	}
	var check *dlq.CheckError
	if !errors.As(err, &check) {
		return []Problem{{What: "the dead letter topics cannot be checked", Err: because(ctx, err)}}
	}
	ps := make([]Problem, len(check.Problems))
	for i, p := range check.Problems {
		ps[i] = Problem{
			What: fmt.Sprintf("dead letter topic %q of %q: %s", p.Topic, p.Source, p.What),
			Fix:  p.Fix + createHint(p),
		}
	}
	return ps
}

// createHint names our own way of creating a topic.
func createHint(p dlq.Problem) string {
	if strings.Contains(p.What, "does not exist") {
		return " with Config.CreateDeadLetterTopics"
	}
	return ""
}

// unreached is a database that does not answer, or that answers and does not let us in.
func unreached(err error) Problem {
	const login, password, database = "28000", "28P01", "3D000"
	var refused *pgconn.PgError
	if errors.As(err, &refused) && slices.Contains([]string{login, password, database}, refused.Code) {
		return Problem{What: "the database does not let us in", Err: err, Fix: "check user, password and database of DB's configuration"}
	}
	return Problem{
		What: "the database cannot be reached", Err: err,
		Fix: "see that it is up, and that DB's configuration is right: one that is empty means a server on this machine",
	}
}

// lookAtDatabase finds what is wrong with the database; inbox asks whether it is ready for one.
func (c *Consumer) lookAtDatabase(ctx context.Context, inbox func(context.Context) error) []Problem {
	ctx, heard, stop := untilSilent(ctx)
	defer stop()
	if err := c.cfg.DB.Ping(ctx); err != nil {
		return []Problem{unreached(because(ctx, err))}
	}
	heard()
	ps := c.readOnly(ctx)
	if len(ps) > 0 && c.cfg.Migrate {
		return ps // the migration would fail of the same
	}
	if err := inbox(ctx); err != nil {
		return append(ps, Problem{What: "the database is not ready for the inbox", Err: because(ctx, err), Fix: schemaFix(err)})
	}
	heard()
	ps = append(ps, c.otherStores(ctx)...)
	return append(ps, c.unparked(ctx)...)
}

// readOnly finds a database that takes no writes, or none of this role's: without this question the first sign of it is
// a route that cannot get its number.
func (c *Consumer) readOnly(ctx context.Context) []Problem {
	var readOnly, standby bool
	const question = "select current_setting('transaction_read_only')::boolean, pg_is_in_recovery()"
	switch err := c.cfg.DB.QueryRow(ctx, question).Scan(&readOnly, &standby); {
	case err != nil:
		return []Problem{{What: "the database cannot be asked whether it takes writes", Err: because(ctx, err)}}
	case standby:
		return []Problem{{
			What: "the database is a standby, which takes no writes",
			Fix:  "connect to the primary, for example with target_session_attrs=read-write and all hosts in DB's connection string",
		}}
	case readOnly:
		return []Problem{{
			What: "the database takes no writes: default_transaction_read_only is on for this database, role or connection",
			Fix:  "alter role … (or database …) set default_transaction_read_only to off, or use another role",
		}}
	}
	return nil
}

func schemaFix(err error) string {
	if errors.Is(err, migrations.ErrVersion) {
		return "set Config.Migrate, or run 'headrace migrate up' with a role that may"
	}
	const denied = "42501"
	if server := (*pgconn.PgError)(nil); errors.As(err, &server) && server != nil && server.Code == denied {
		return "grant usage on schema headrace, and select, insert, update, delete on all tables in it, to this role"
	}
	var hint interface{ Hint() string }
	if errors.As(err, &hint) {
		return hint.Hint()
	}
	return ""
}

// checkSchema applies nothing: a schema that Run would bring up to date is fine.
func (c *Consumer) checkSchema(ctx context.Context) error {
	if c.cfg.Migrate {
		return nil
	}
	inbox, err := dedup.Open(ctx, c.cfg.DB, c.inboxConfig())
	if err != nil {
		return err
	}
	inbox.Close()
	return nil
}

// sources are the topics of the routes, each once, in their order.
func (c *Consumer) sources() []string {
	seen := map[string]bool{}
	var names []string
	for _, s := range c.specs {
		if !seen[s.topic] {
			seen[s.topic] = true
			names = append(names, s.topic)
		}
	}
	return names
}

func (c *Consumer) routesOf(topic string) []string {
	var names []string
	for _, s := range c.specs {
		if s.topic == topic {
			names = append(names, fmt.Sprintf("%q", s.name))
		}
	}
	return names
}
