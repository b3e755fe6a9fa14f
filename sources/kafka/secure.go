package kafka

import (
	"fmt"

	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/headrace/headrace/internal/secret"
)

// secure reads the certificates and passwords that the spec names.
func (o *Options) secure(k *Spec, allowedRoots []string) error {
	var err error
	if k.TLS != nil {
		if o.TLS, err = secret.TLS("kafka.tls", k.TLS); err != nil {
			return err
		}
	}
	if k.SASL == nil {
		return nil
	}
	word, err := secret.Read("kafka.sasl.password", k.SASL.Password, allowedRoots)
	if err != nil {
		return err
	}
	o.User = k.SASL.User
	switch k.SASL.Mechanism {
	case "plain":
		o.SASL = plain.Mechanism{Username: o.User, Password: word}
	case "scram-sha-256":
		o.SASL, err = scram.Mechanism(scram.SHA256, o.User, word)
	case "scram-sha-512":
		o.SASL, err = scram.Mechanism(scram.SHA512, o.User, word)
	default:
		err = fmt.Errorf("kafka.sasl.mechanism %q is not known", k.SASL.Mechanism)
	}
	return err
}
