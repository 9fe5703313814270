// Package audit counts what became of each record of a topic, for a consumer group, from what stands in Kafka and Postgres
// and from nothing else: it shares no code with the engine whose promise it examines. The formats of headers, ids and tables
// are written down here a second time.
//
// The order of its looks makes what it sees consistent while consumers run:
//
//	end of the topic -> committed offsets -> end of the letters and replays -> rows, a statement a chunk of records
//
// Whatever is below the committed offset had its outcome before that was read, so the rows and letters that are looked at
// later have it. A letter that is seen had its row before. What came in between (a verdict whose letter was written after
// its topic's end was fixed) looks wrong, so whatever looks wrong is looked at a second time.
package audit
