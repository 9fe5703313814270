package main

const about = `demo-consumer charges orders from Kafka with a payment service and posts them to accounts in Postgres while
everything goes wrong, and then counts, from the topics, the tables and the payment service alone, that each order was
charged and posted exactly once. It exits 0 only if that holds, 1 if it does not, and 2 for a wrong command line.

With nothing given it brings its own broker and its own Postgres. On those of deploy/compose (make up):

  demo-consumer --brokers localhost:9092 --dsn 'postgres://headrace:headrace@localhost:5432/headrace?sslmode=disable'

The parts of a run may be processes of their own; kill the consuming one as often as you like and start it again:

  demo-consumer --produce-only --brokers … --dsn …
  demo-consumer --consume-only --brokers … --dsn …
  demo-consumer --audit-only   --brokers … --dsn …

The live line counts what this process has settled, parked orders too, and as uncommitted the records of the topic whose
offset the group has not committed: those that are not read yet, and settled ones behind one that waits. Holding is how many waits are
under way, of a record or of several, at no charge, for what is away or busy: a dependency, the database, a lock.

--store offset remembers a partition's offsets in one row, in place of a row an order. A crash brings back less then; a
producer's duplicate would be charged by its own key, and posted twice. So none are produced, nor are contradictions, and
what is skipped is what is done and has no posting. It cannot park: no bank is away.

--json prints the report alone: records = effected + duplicate + skipped + dead + parked, balanced, dead_by_reason,
parked_meanwhile, order_kept, events, notices, degraded, store, charges, charged_in_vain, double_charges, charged_anew, new_ids,
breaker_opened, rebalances, seconds, rate and more. With --stay it is printed twice, each on a line of its own, at the end
of the run and when it is interrupted, with brokers, dsn, dead_letter_topic, metrics and payments, where everything is.

Flags, with one dash or two:
`
