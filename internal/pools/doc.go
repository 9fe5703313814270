// Package pools opens the connection pools that are ours beside the user's: each says who it is, and its end is bounded.
//
// pgxpool.Pool.Close waits for every connection, and pgx gives the end of one that a deadline has cut off 15 s: for a cancel
// request, which a server that hangs does not read. So a process that is to stop while its database hangs would wait for
// that, a pool after the other, and be killed in the middle of it.
package pools
