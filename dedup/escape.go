package dedup

import (
	"github.com/headrace/headrace/record"
)

// escape takes back the rows of what is not done, in a transaction of its own, and stops the route. No verdict of the group
// stands: what a failed record wrote may be durable, and should its row stay, whoever buries it would find it effected.
func (g *group) escape(e *entry) verdict {
	for _, x := range g.todo {
		if x.mode == failing {
			x.mode, x.err = waiting, nil
		}
	}
	g.failed = nil
	g.rt.stop(ErrRouteStopped)
	g.rt.in.report(record.Report{
		Kind: record.ReportTransactionEnded, Route: g.rt.cfg.Name, Topic: e.r.Topic, Partition: e.r.Partition, Offset: e.r.Offset,
		Err:  ErrRouteStopped,
		Hint: "the handler of this record ended the transaction through tx.Conn(); what it wrote before that is durable, the record is not settled",
	})
	g.disconnect()
	if err, hint := g.putRight(); err != nil {
		g.rt.in.report(record.Report{
			Kind: record.ReportTransactionEnded, Route: g.rt.cfg.Name, Topic: e.r.Topic, Partition: e.r.Partition, Offset: e.r.Offset,
			Err: err, Hint: hint,
		})
	}
	return escaped
}

// putRight makes the inbox say what is durable of a transaction that a handler has ended.
func (g *group) putRight() (err error, hint string) { //nolint:revive,staticcheck // the hint belongs to the error
	if g.rt.offsets != nil {
		return g.markEscaped(), "records whose effects that made durable could not be marked as done: they run again when the route starts again"
	}
	ids := g.rows(func(x *entry) bool { return x.mode != done })
	err = g.rt.in.takeBack(g.rt.consumer, ids, array(g.w.cols.coords))
	if err == nil {
		err = g.saveEscaped(g.rows(func(x *entry) bool { return x.mode == done }))
	}
	return err, "inbox rows of records that are not done could not be taken back: delete those without an effect before the route starts again; events that were published for those with one may be missing"
}
