// Package consumer is the assembled thing: routes in, a running consumer out, in which every record of a topic has its
// effect exactly once.
//
//	c, err := consumer.New(consumer.Config{
//		Brokers: []string{"localhost:9092"},
//		Group:   "billing",
//		DB:      pool,
//		Migrate: true,
//	},
//		consumer.Route[OrderPlaced]{
//			Name:  "post-order-to-ledger", // permanent: the inbox remembers by it
//			Topic: "orders",
//			Apply: func(ctx context.Context, tx pgx.Tx, e consumer.Event[OrderPlaced]) error {
//				_, err := tx.Exec(ctx, `update accounts set balance = balance - $1 where id = $2`, e.Data.Amount, e.Data.Account)
//				return err
//			},
//		},
//	)
//	if err != nil {
//		log.Fatal(err)
//	}
//	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
//	defer stop()
//	if err := c.Run(ctx); err != nil {
//		log.Fatal(err)
//	}
//
// # What a handler does
//
// It writes through tx and returns. nil makes its writes durable, together with the inbox's row that says so. An error
// undoes them; package fault says what each error means, and a handler says more with its verbs: fault.Permanent to the
// dead letter topic now, fault.Transient and fault.RetryAfter to be tried again, fault.Unavailable to wait for a
// dependency without spending attempts, fault.Skip for no effect. It may run more than once, so whatever it does beside
// tx may happen more than once. Handlers of other records share its transaction, each behind a savepoint of its own.
//
// # Routes that queue, and routes that get a whole group
//
// A handler that executes its SQL waits for the server once a statement. A [QueueRoute] queues it instead, and everything
// that a group queued is one round trip, with COMMIT:
//
//	consumer.QueueRoute[OrderPlaced]{
//		Name: "post-order-to-ledger", Topic: "orders",
//		Queue: func(b *pgx.Batch, e consumer.Event[OrderPlaced]) error {
//			b.Queue(`update accounts set balance = balance - $1 where id = $2`, e.Data.Amount, e.Data.Account)
//			return nil
//		},
//	}
//
// A [BatchRoute] gets all events of a group and writes set-based SQL. It names those that failed with fault.Members; when
// it does not, they are found by halving. Both promise for each record what a Route does; docs/guarantees.md compares
// them. A handler that touches anything but its batch or its tx is wrong: it may run more than once.
//
// # Routes that call
//
// A [CallRoute] asks a dependency for each record and then writes what came of it:
//
//	payments, err := downstream.New(downstream.Config{Name: "payments"})
//	// …
//	client := &http.Client{Transport: payments.Transport(nil)}
//	consumer.CallRoute[OrderPlaced, Receipt]{
//		Name: "charge", Topic: "orders", Dependency: payments,
//		Repeat: consumer.RepeatKeyed, // it carries out each Idempotency-Key once
//		Call:   func(ctx context.Context, e consumer.Event[OrderPlaced]) (Receipt, error) { … },
//		Apply:  func(ctx context.Context, tx pgx.Tx, e consumer.Event[OrderPlaced], r Receipt) error { … },
//	}
//
// Call runs before the transaction, side by side for different keys, and at least once: always with the same idempotency
// key, which the Transport sends. Apply runs in the transaction, as that of a Route. While the dependency's breaker is
// open the route holds, at no record's cost.
//
// # What comes back
//
// Dead letters that are replayed come back through "<topic>.<group>.replay", which every route reads beside its topic
// through the same layers. The route that the letter was of runs it under its old identity, so that a second replay has
// no second effect; the others settle it as foreign. It comes after whatever its topic has brought meanwhile: order is
// kept among what is replayed, not between that and the source.
//
// # What is refused, and when
//
//	New    what the configuration alone shows: missing or contradicting fields, two routes of one name, dead letters
//	       that come back, budgets that do not fit (see [Plan]), a call that nobody says may be made again
//	Run    what broker and database show: unknown topics, a dead letter or replay topic that cannot take what the topic
//	       holds, an inbox that forgets before the topics do, a schema that is not this build's; [Consumer.Check] asks the
//	       same and changes nothing
//
// All problems come at once, in a [*StartError], each with its value and what to do about it.
//
// # The life of a consumer
//
//	New ─► Run ─► open: topics, schema, inbox, group ─► ready ─► ctx ends ─► drain ─► commit ─► leave ─► nil
//	                                                      │
//	                                                      └─► the member was fenced, a record is stuck ─► error
//
// [Consumer.Handler] serves /livez, /readyz and /metrics during all of it. A dependency that is down holds its routes:
// readiness says so and liveness stays green, because a restart would not bring it back.
//
// # Metrics
//
// All begin with headrace_, and every label is bounded. Series are there from the start, at zero, but for those of
// partitions, which come and go with their claims, and topic_retention_seconds, which the broker must say first.
//
//	records_total{route,outcome}              record_duration_seconds{route}
//	replayed_total{route,outcome}             dead_letters_total{route,reason}
//	attempts_total{route,outcome,class}       attempt_duration_seconds{route}
//	inbox_answers_total{route,answer}         commit_groups_total{route,result}
//	commit_group_records{route}               commit_group_duration_seconds{route}
//	holding{route,dependency}                 hold_seconds_total{route,dependency}
//	calls_total{dependency,route,outcome}     call_duration_seconds{dependency}
//	breaker_state{dependency,state}           breaker_trips_total{dependency}
//	breaker_open_seconds_total{dependency}    topic_retention_seconds{topic}
//	retry_attempts_total{dependency,outcome}  retry_amplification_ratio{dependency}
//	degraded_total{dependency,source,reason}  calls_in_transaction_total{dependency}
//	bulkhead_in_use{dependency}
//	partition_lag{topic,partition}            partition_lag_seconds{topic,partition}
//	in_flight_records{topic,partition}        in_flight_bytes{topic,partition}
//	partition_paused{topic,partition}         oldest_in_flight_age_seconds{topic,partition}
//	claims_total{event}                       reports_total{kind}
//	outbox_events_total{result}               outbox_rows{}
//	outbox_bytes{}                            outbox_oldest_seconds{}
//	outbox_snapshot_seconds{}                 parked_records{route}
//	parked_oldest_seconds{route}              parked_due_seconds{route}
//	parked_tries_total{route,outcome}         parked_rounds{route}
//	offsets_lost_total{kind}
//
// docs/operations.md says what each tells, and which alerts are worth having. [Metrics] gives the list to a program.
package consumer
