package rocketmq

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
)

const retryAfter = 200 * time.Millisecond

var errClosed = errors.New("rocketmq: the source is closed")

// errAgain: the same is asked again soon.
var errAgain = errors.New("again")

func temporary(err error) error { return &sources.Temporary{Err: err, Backoff: retryAfter} }

// explain says what an error of a request means: *sources.Temporary where another
// try may help.
func (s *Source) explain(ctx context.Context, err error, what string) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var (
		authority  x509.UnknownAuthorityError
		host       x509.HostnameError
		invalid    x509.CertificateInvalidError
		unverified *tls.CertificateVerificationError
		notTLS     tls.RecordHeaderError
		alert      tls.AlertError
		refused    *remoting.Error
		again      *sources.Temporary
	)
	switch {
	case errors.As(err, &again):
		return err
	case errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &unverified):
		return fmt.Errorf("%s: the certificate is not accepted: check rocketmq.tls.ca and rocketmq.tls.server_name (%w)", what, notTheEnd(err))
	case errors.As(err, &notTLS):
		return fmt.Errorf("%s: the server does not speak TLS on this port: check rocketmq.name_servers, or leave rocketmq.tls out (%w)", what, notTheEnd(err))
	case errors.As(err, &alert):
		return fmt.Errorf("%s: the server refused our side of TLS: check rocketmq.tls.cert and rocketmq.tls.key (%w)", what, notTheEnd(err))
	case errors.As(err, &refused):
		return s.refused(refused, what)
	case errors.Is(err, remoting.ErrUnreachable):
		return &sources.Temporary{Err: fmt.Errorf("%s: %w", what, notTheEnd(err)), Backoff: retryAfter}
	}
	return fmt.Errorf("%s: %w", what, notTheEnd(err))
}

// refused says what an answer's code means.
func (s *Source) refused(e *remoting.Error, what string) error {
	err := fmt.Errorf("%s: %w", what, e)
	switch e.Code {
	case remoting.GroupUnknown:
		return fmt.Errorf("%w: the broker knows no subscription group %q and makes none by itself: create it (mqadmin updateSubGroup -g %s)", err, s.o.group(), s.o.group())
	case remoting.NoPermission:
		if s.o.Credentials.AccessKey == "" {
			return fmt.Errorf("%w: give an access key in rocketmq.acl, or let the topic be read", err)
		}
		return fmt.Errorf("%w: allow it to access key %q, or correct rocketmq.acl", err, s.o.Credentials.AccessKey)
	case remoting.SystemError, remoting.SystemBusy, remoting.FlowControl, remoting.TopicUnknown:
		return temporary(err)
	}
	return err
}

// notTheEnd: io.EOF from a cursor says that its range is read. The end of a
// connection, which is io.EOF too, must never be taken for it.
func notTheEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New(err.Error())
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
