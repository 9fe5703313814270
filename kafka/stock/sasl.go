package stock

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/sasl"
)

// errForeign is of a mechanism that does not speak as its name says.
var errForeign = errors.New("the mechanism's first message is not that of its kind")

// login has Sarama log in by the mechanism that the other clients have. Sarama wants the parts of what a mechanism sends:
// of PLAIN and OAUTHBEARER they are taken from its first message, SCRAM is spoken by the mechanism itself.
func login(cfg *sarama.Config, m sasl.Mechanism) error {
	s := &cfg.Net.SASL
	s.Enable, s.Mechanism = true, sarama.SASLMechanism(m.Name())
	switch s.Mechanism {
	case sarama.SASLTypePlaintext:
		_, first, err := m.Authenticate(context.Background(), "")
		if err != nil {
			return fmt.Errorf("ClientConfig.SASL: %w", err)
		}
		parts := bytes.Split(first, []byte{0})
		if len(parts) != 3 {
			return errForeign
		}
		s.AuthIdentity, s.User, s.Password = string(parts[0]), string(parts[1]), string(parts[2])
	case sarama.SASLTypeSCRAMSHA256, sarama.SASLTypeSCRAMSHA512:
		s.User, s.Password = "by the mechanism", "by the mechanism" // Sarama asks that there are some
		s.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{mechanism: m} }
	case sarama.SASLTypeOAuth:
		s.TokenProvider = tokens{m}
	case sarama.SASLTypeGSSAPI:
		return errors.New("ClientConfig.SASL by GSSAPI cannot be handed on to Sarama; set Net.SASL in Config.Sarama")
	default:
		return fmt.Errorf("ClientConfig.SASL by %s cannot be handed on to Sarama, which does not know it", m.Name())
	}
	return nil
}

// scramClient is one login by SCRAM. Sarama hands it the server's messages.
type scramClient struct {
	mechanism sasl.Mechanism
	session   sasl.Session
	done      bool
}

var _ sarama.SCRAMClient = (*scramClient)(nil)

// Begin implements sarama.SCRAMClient. User and password are the mechanism's.
func (c *scramClient) Begin(string, string, string) error {
	c.session, c.done = nil, false
	return nil
}

// Step implements sarama.SCRAMClient.
func (c *scramClient) Step(challenge string) (string, error) {
	if c.session == nil {
		session, first, err := c.mechanism.Authenticate(context.Background(), "")
		if err != nil {
			return "", err
		}
		c.session = session
		return string(first), nil
	}
	done, answer, err := c.session.Challenge([]byte(challenge))
	c.done = done
	return string(answer), err
}

// Done implements sarama.SCRAMClient.
func (c *scramClient) Done() bool { return c.done }

// tokens asks the mechanism for what it would send.
type tokens struct{ mechanism sasl.Mechanism }

var _ sarama.AccessTokenProvider = tokens{}

// Token implements sarama.AccessTokenProvider.
func (t tokens) Token() (*sarama.AccessToken, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	_, first, err := t.mechanism.Authenticate(ctx, "")
	if err != nil {
		return nil, err
	}
	// RFC 7628: "n,,", then fields between bytes of 1, of which one is the token and the others are extensions.
	token := &sarama.AccessToken{Extensions: map[string]string{}}
	for i, field := range bytes.Split(first, []byte{1}) {
		name, value, ok := bytes.Cut(field, []byte("="))
		switch bearer, is := bytes.CutPrefix(value, []byte("Bearer ")); {
		case i == 0 || !ok:
		case string(name) == "auth" && is:
			token.Token = string(bearer)
		default:
			token.Extensions[string(name)] = string(value)
		}
	}
	if token.Token == "" {
		return nil, errForeign
	}
	return token, nil
}
