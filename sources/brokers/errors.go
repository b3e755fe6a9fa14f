package brokers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"time"
)

// Pause waits for d. If ctx ends before, it returns the error of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NotTheEnd hides an io.EOF in err. io.EOF from a cursor means that its range is read, and
// the end of a connection, which is io.EOF too, must never look like that.
func NotTheEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New(err.Error())
	}
	return err
}

// TLSFault says why a TLS connection was not made.
type TLSFault uint8

const (
	NoTLSFault     TLSFault = iota // err is about something else
	BadCertificate                 // we do not accept the server's certificate
	NotTLS                         // the server does not speak TLS on this port
	OursRefused                    // the server does not accept our certificate, version or ciphers
)

// TLSFaultOf finds the cause in an error of a connection.
func TLSFaultOf(err error) TLSFault {
	var (
		authority  x509.UnknownAuthorityError
		host       x509.HostnameError
		invalid    x509.CertificateInvalidError
		unverified *tls.CertificateVerificationError
		notTLS     tls.RecordHeaderError
		alert      tls.AlertError
	)
	switch {
	case errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &unverified):
		return BadCertificate
	case errors.As(err, &notTLS):
		return NotTLS
	case errors.As(err, &alert):
		return OursRefused
	}
	return NoTLSFault
}

// Longer says whether more than d has passed since then. The first call sets since to now.
func Longer(since *time.Time, d time.Duration) bool {
	if since.IsZero() {
		*since = time.Now()
	}
	return time.Since(*since) > d
}
