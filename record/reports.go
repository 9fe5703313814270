package record

// The kinds of a Report: a closed list, so that metrics have a series for each from the start, and alerts may name them.
const (
	// ReportBatchWithoutPayload: a middleware before the stack sees the empty payload of a message of several records.
	ReportBatchWithoutPayload = "batch_without_payload"
	// ReportBusy: what a record needs has been in use by another for a minute, whenever it was tried; its key waits.
	ReportBusy = "busy"
	// ReportCallInTransaction: a dependency is called inside the inbox's transaction, which waits for it.
	ReportCallInTransaction = "call_in_transaction"
	// ReportCallWithoutContext: a call was refused by the dependency of its own route, because something in it was sent
	// without the call's context; its record is held.
	ReportCallWithoutContext = "call_without_context"
	// ReportCommitFailed: offsets could not be committed for some time.
	ReportCommitFailed = "commit_failed"
	// ReportCoordinatorSilent: no heartbeat was answered for a session; the claims have ended.
	ReportCoordinatorSilent = "coordinator_silent"
	// ReportCrashLoop: a record has taken down its connection or its process three times, and is dead for it.
	ReportCrashLoop = "crash_loop"
	// ReportDataLoss: the log was cut below what had been read; an inbox tells what comes again, and it is read on.
	ReportDataLoss = "data_loss"
	// ReportDeadLetterNotWritten: the dead letter topic does not take a letter; its record is held.
	ReportDeadLetterNotWritten = "dead_letter_not_written"
	// ReportDegraded: reads of a dependency are answered with substitutes, because it fails.
	ReportDegraded = "degraded"
	// ReportFloodGuard: nearly everything of a partition fails; it holds.
	ReportFloodGuard = "flood_guard"
	// ReportGroupError: the member fell out of its consumer group, or cannot get in; it is tried again.
	ReportGroupError = "group_error"
	// ReportKeyNotSent: a route calls with the promise that its idempotency keys are heeded, and sends none.
	ReportKeyNotSent = "key_not_sent"
	// ReportLeftUnsettled: a layer or a handler returned without an outcome; the records were given back.
	ReportLeftUnsettled = "left_unsettled"
	// ReportNotCorroborated: a record's calls go on failing while nothing else shows that the dependency answers anybody;
	// they are not charged to it, and its key waits.
	ReportNotCorroborated = "not_corroborated"
	// ReportOffsetOutOfRange: the next record is not in the log any more; the partition is held, or goes on as OnOffsetLoss
	// says.
	ReportOffsetOutOfRange = "offset_out_of_range"
	// ReportOffsetsHeld: nobody can tell what of a partition is done, because the offset store's row of it cannot be read or
	// its topic's id is unknown; nothing of it runs.
	ReportOffsetsHeld = "offsets_held"
	// ReportOutboxBehind: more events wait in the outbox, or for longer, than the forwarder's configuration calls normal.
	ReportOutboxBehind = "outbox_behind"
	// ReportOutboxBlocked: the events of one topic cannot be sent; those of the others are.
	ReportOutboxBlocked = "outbox_blocked"
	// ReportOutboxUnreadable: a forwarder cannot read the outbox, or delete what it has sent; nothing is sent.
	ReportOutboxUnreadable = "outbox_unreadable"
	// ReportOvertaken: another process acquires a partition of an offset store again and again while this one's claim lives.
	ReportOvertaken = "overtaken"
	// ReportParkingFailed: a record cannot be parked; it is held.
	ReportParkingFailed = "parking_failed"
	// ReportPartitionError: a partition cannot be fetched; it is held and tried again.
	ReportPartitionError = "partition_error"
	// ReportReplayNotTaken: a dead letter was replayed for a route that nobody in this process has.
	ReportReplayNotTaken = "replay_not_taken"
	// ReportReplayWithoutEnvelope: a record of a replay topic was not written by Headrace.
	ReportReplayWithoutEnvelope = "replay_without_envelope"
	// ReportStackOrder: the layers are not in the order of middleware.Stack.
	ReportStackOrder = "stack_order"
	// ReportStrayPanic: something outside of a handler panicked; the records were given back.
	ReportStrayPanic = "stray_panic"
	// ReportStuckRecord: a handler runs and does not heed its context, or a decoder or resolver does not return.
	ReportStuckRecord = "stuck_record"
	// ReportSubscriptionGone: a subscription has ended while its source goes on; its records hold the offset.
	ReportSubscriptionGone = "subscription_gone"
	// ReportTopicRecreated: a topic has another id than before; it is held, or read as OnOffsetLoss says.
	ReportTopicRecreated = "topic_recreated"
	// ReportTransactionEnded: a handler ended the inbox's transaction; the route has stopped.
	ReportTransactionEnded = "transaction_ended"
	// ReportTruncated: a log lost records that the offset store knows as done, whose offsets come again; the partition is held.
	ReportTruncated = "truncated"
	// ReportVerdictNotWritten: the database does not take the verdict on a record; it is held.
	ReportVerdictNotWritten = "verdict_not_written"
)

// ReportKinds are all kinds, in alphabetical order. Do not change it.
var ReportKinds = [...]string{
	ReportBatchWithoutPayload, ReportBusy, ReportCallInTransaction, ReportCallWithoutContext, ReportCommitFailed,
	ReportCoordinatorSilent, ReportCrashLoop, ReportDataLoss, ReportDeadLetterNotWritten, ReportDegraded,
	ReportFloodGuard, ReportGroupError, ReportKeyNotSent, ReportLeftUnsettled, ReportNotCorroborated,
	ReportOffsetOutOfRange, ReportOffsetsHeld, ReportOutboxBehind, ReportOutboxBlocked, ReportOutboxUnreadable,
	ReportOvertaken, ReportParkingFailed, ReportPartitionError, ReportReplayNotTaken, ReportReplayWithoutEnvelope,
	ReportStackOrder, ReportStrayPanic, ReportStuckRecord, ReportSubscriptionGone, ReportTopicRecreated,
	ReportTransactionEnded, ReportTruncated, ReportVerdictNotWritten,
}
