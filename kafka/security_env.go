package kafka

import (
	"fmt"
	"strings"
)

// SecurityFromEnv reads a Security from environment variables, which are named after the properties that other clients of
// Kafka have; getenv is os.Getenv as a rule. Each may begin with HEADRACE_ too, which goes before KAFKA_. What is not set
// is left out; Resolve says what does not go together.
//
//	KAFKA_SECURITY_PROTOCOL         PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; without it, what the others need
//	KAFKA_SSL_CA_LOCATION           Security.CAFile
//	KAFKA_SSL_CERTIFICATE_LOCATION  Security.CertFile
//	KAFKA_SSL_KEY_LOCATION          Security.KeyFile
//	KAFKA_SASL_MECHANISM            Security.Mechanism
//	KAFKA_SASL_USERNAME             Security.User
//	KAFKA_SASL_PASSWORD             Security.Password, or the token of OAUTHBEARER
//	KAFKA_SASL_PASSWORD_FILE        Security.PasswordFile
//
// The error is a *SecurityError.
func SecurityFromEnv(getenv func(string) string) (Security, error) {
	env := func(name string) string {
		if v := getenv("HEADRACE_" + name); v != "" {
			return v
		}
		return getenv("KAFKA_" + name)
	}
	s := Security{
		CAFile: env("SSL_CA_LOCATION"), CertFile: env("SSL_CERTIFICATE_LOCATION"), KeyFile: env("SSL_KEY_LOCATION"),
		Mechanism: env("SASL_MECHANISM"), User: env("SASL_USERNAME"),
		Password: env("SASL_PASSWORD"), PasswordFile: env("SASL_PASSWORD_FILE"),
	}
	protocol := env("SECURITY_PROTOCOL")
	encrypted, login := false, s.Mechanism != ""
	switch strings.ToUpper(protocol) {
	case "":
		s.TLS = s.CAFile != "" || s.CertFile != "" || s.KeyFile != ""
		return s, nil
	case "PLAINTEXT":
	case "SSL":
		encrypted = true
	case "SASL_PLAINTEXT":
		login = true
	case "SASL_SSL":
		encrypted, login = true, true
	default:
		return Security{}, &SecurityError{
			What: fmt.Sprintf("KAFKA_SECURITY_PROTOCOL %q is not known", protocol), Fix: "use PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
		}
	}
	s.TLS = encrypted
	if has := strings.HasPrefix(strings.ToUpper(protocol), "SASL"); login != has {
		return Security{}, &SecurityError{
			What: "KAFKA_SASL_MECHANISM with KAFKA_SECURITY_PROTOCOL " + protocol, Fix: "leave it out, or use SASL_SSL",
		}
	}
	if login && s.Mechanism == "" {
		return Security{}, &SecurityError{
			What: "KAFKA_SECURITY_PROTOCOL " + protocol + " without KAFKA_SASL_MECHANISM", Fix: "name one of " + strings.Join(Mechanisms[:], ", "),
		}
	}
	return s, nil
}
