package hint

// Words are how whoever reads the hint configures a client: by flags, or by fields. They stand in the middle of a sentence.
type Words struct {
	// Brokers is where the addresses stand, as in "--brokers".
	Brokers string
	// AddTLS and DropTLS tell how TLS is spoken, and how it is not, as in "add --tls".
	AddTLS, DropTLS string
	// CA tells how an authority is believed, as in "name its file by --tls-ca-file".
	CA string
	// Certificate is what has the client's own certificate and key.
	Certificate string
	// AddLogin and DropLogin tell how a client logs in, and how it does not.
	AddLogin, DropLogin string
	// Login is everything that a login has, and Mechanism the one word of it.
	Login, Mechanism string
}
