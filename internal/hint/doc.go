// Package hint says what to do about a connection to the brokers that does not come about: what is wrong is as a rule one
// word of the configuration, and what client and brokers say of it is far from that word.
//
// It goes by the error of one try, as [kafka.Admin.Ping] gives it: whoever tries again keeps it to himself.
package hint
