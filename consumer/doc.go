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
// # What is refused, and when
//
//	New    what the configuration alone shows: missing or contradicting fields, two routes of one name, dead letters
//	       that come back, budgets that do not fit (see [Plan])
//	Run    what broker and database show: unknown topics, a dead letter topic that cannot take what the topic holds, an
//	       inbox that forgets before the topic does, a missing schema; [Consumer.Check] asks the same and changes nothing
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
// All begin with headrace_, all have all of their labels from the start, and every label is bounded.
//
//	records_total{route,outcome}              record_duration_seconds{route}
//	attempts_total{route,outcome,class}       attempt_duration_seconds{route}
//	inbox_answers_total{route,answer}         dead_letters_total{route,reason}
//	commit_groups_total{route,result}         commit_group_records{route}, commit_group_duration_seconds{route}
//	holding{route,dependency}                 hold_seconds_total{route,dependency}
//	claims_total{event}                       reports_total{kind}
//	partition_lag{topic,partition}            in_flight_records, in_flight_bytes{topic,partition}
//	oldest_in_flight_age_seconds{topic,partition}, partition_paused{topic,partition}
package consumer
