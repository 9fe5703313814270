// Package embedded starts a real Postgres with nothing but Go on the machine: the demo, the tests and the benchmarks
// run on it.
//
//	server, err := embedded.Postgres(ctx, embedded.Config{})
//	if err != nil {
//		return err
//	}
//	defer server.Close()
//	pool, err := pgxpool.New(ctx, server.DSN())
//
// The first start on a machine downloads the binaries (15 MB, from Maven Central) and initialises a cluster; both are
// kept in the cache directory, so that a later start is a copy and takes under a second. Processes that start at the
// same time share one download, behind a lock.
//
// A server is this process's own: its data directory, its port. [Server.Stop], [Server.Kill] and [Server.Start] make
// it go away and come back with the same data on the same port. When the process ends, however it ends, the server
// ends and its directory is removed: a small shell script waits for the end of its input, which the kernel brings
// about even when the process is killed.
//
// Postgres refuses to run as root. Run as root, this package runs the server, and everything else that touches its
// data, as the user "nobody" (uid 65534).
//
// It works on Unix. Elsewhere [Postgres] returns an error that wraps [errors.ErrUnsupported].
package embedded
