// Package migrations is Headrace's SQL and the code that applies it.
//
// Everything lives in the schema "headrace" of the user's database, beside the tables that handlers write, because an
// effect and its inbox row are one transaction. [Up] brings a database to [Latest]; [Check] refuses one that is behind
// or ahead, with a hint; [Status] shows what is applied.
//
//	if err := migrations.Up(ctx, pool); err != nil {
//		return err
//	}
//
// Any number of processes may call Up at once: one applies, the others wait and find nothing to do. The lock is an
// advisory lock of a transaction, not of a session, so a pooler in transaction mode is no obstacle.
//
// A role that may not create schemas can use a schema "headrace" that an administrator made for it.
package migrations
