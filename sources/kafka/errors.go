package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/sources"
)

// Error codes that kafka-go has no name for.
const (
	codeNone              = 0
	codeOutOfRange        = 1
	codeUnknownTopic      = 3
	codeFencedEpoch       = 74
	codeUnknownEpoch      = 75
	codeUnknownTopicID    = 100
	codeInconsistentTopic = 103
)

const retryAfter = 200 * time.Millisecond

func temporary(err error) error { return &sources.Temporary{Err: err, Backoff: retryAfter} }

// explain says what an error of a connection means: *sources.Temporary where
// another try may help.
func (c *client) explain(ctx context.Context, err error) error {
	// The caller's own end is not the broker's fault; ask's deadline is.
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	where := fmt.Sprintf("Kafka at %s", c.addr)
	closed := endOfConnection(err)
	err = notTheEnd(err)
	var (
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		invalid     x509.CertificateInvalidError
		unverified  *tls.CertificateVerificationError
		notTLS      tls.RecordHeaderError
		alert       tls.AlertError
		temporaryNo *sources.Temporary
	)
	switch {
	case errors.As(err, &temporaryNo):
		return err
	case c.mechanism != "" && refusedLogin(err):
		return fmt.Errorf("%s refused user %q with %s: check sasl.user and the password it names (%w)", where, c.user, c.mechanism, err)
	case errors.Is(err, kafkago.UnsupportedSASLMechanism):
		return fmt.Errorf("%s does not offer %s: change sasl.mechanism (%w)", where, c.mechanism, err)
	case errors.Is(err, kafkago.IllegalSASLState):
		return fmt.Errorf("%s takes no login on this port: check brokers, or leave sasl out (%w)", where, err)
	case errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &unverified):
		return fmt.Errorf("%s shows a certificate that is not accepted: check tls.ca and tls.server_name (%w)", where, err)
	case errors.As(err, &notTLS):
		return fmt.Errorf("%s does not speak TLS on this port: check brokers, or leave tls out (%w)", where, err)
	case errors.As(err, &alert):
		return fmt.Errorf("%s refused our side of TLS: check tls.cert and tls.key (%w)", where, err)
	}
	var code kafkago.Error
	if errors.As(err, &code) {
		err = fmt.Errorf("%s: %w", where, err)
		if code.Temporary() || code == kafkago.UnknownTopicOrPartition || code == kafkago.BrokerNotAvailable {
			return temporary(err)
		}
		return err
	}
	if errors.Is(err, errAnswer) || errors.Is(err, errShort) {
		return fmt.Errorf("%s: %w", where, err)
	}
	hint := ""
	if closed {
		hint = c.closedHint()
	}
	var network net.Error
	if hint != "" || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) {
		return &sources.Temporary{Err: fmt.Errorf("%s does not answer%s: %w", where, hint, err), Backoff: retryAfter}
	}
	return fmt.Errorf("%s: %w", where, err)
}

// notTheEnd: io.EOF from a cursor says that its range is read. The end of a
// connection, which is io.EOF too, must never be taken for it.
func notTheEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New(err.Error())
	}
	return err
}

func endOfConnection(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed)
}

// closedHint: a broker hangs up on who does not speak as its port wants.
func (c *client) closedHint() string {
	switch {
	case c.transport.TLS == nil && c.mechanism == "":
		return " (it closed the connection; if it always does, this port wants tls or sasl)"
	case c.transport.TLS == nil:
		return " (it closed the connection; if it always does, this port wants tls or another login)"
	}
	return " (it closed the connection; if it always does, this port does not speak TLS: leave tls out)"
}

// refusedLogin knows how kafka-go tells it, which differs by mechanism.
func refusedLogin(err error) bool {
	return errors.Is(err, kafkago.SASLAuthenticationFailed) || strings.Contains(err.Error(), "SASL Authentication failed") ||
		strings.Contains(strings.ToLower(err.Error()), "invalid credentials")
}

// answered turns a code in an answer into an error.
func answered(code int16, what string) error {
	if code == codeNone {
		return nil
	}
	err := fmt.Errorf("%s: %w", what, kafkago.Error(code))
	switch {
	case kafkago.Error(code).Temporary(), code == codeUnknownTopic, code == codeFencedEpoch, code == codeUnknownEpoch, code == codeUnknownTopicID:
		return temporary(err)
	}
	return err
}
