// Package pgtest gives each test a Postgres database of its own, and a proxy that breaks connections at the worst time.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestInbox(t *testing.T) {
//		t.Parallel()
//		pool := pgtest.New(t, migrations.Up) // a fresh, migrated database, dropped with the test
//		…
//	}
//
// The tests of a package share one embedded server, started by the first of them. With HEADRACE_TEST_DSN set they use
// that server instead: the URL of a user who may create databases.
//
// A test that stops or kills the server takes one of its own from [Server].
//
// # Breaking connections
//
// A [Proxy] understands as much of Postgres' protocol as it takes to tell one request from the next. So a test can lose
// the reply to COMMIT, and nothing else:
//
//	proxy := pgtest.NewProxy(t, pgtest.DSN(t, migrations.Up))
//	lost := proxy.Once(pgtest.Commit, pgtest.CutReply)
//	pool := pgtest.Pool(t, proxy.DSN())
//	… // the transaction commits, the client sees a reset connection
//	<-lost
package pgtest
