package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

const retryAfter = 200 * time.Millisecond

// errAgain makes Next ask for the same offset again, after retryAfter.
var errAgain = errors.New("again")

func temporary(err error) error { return &sources.Temporary{Err: err, Backoff: retryAfter} }

// away means that no broker answers for a queue now.
func away(err error) error {
	return &sources.Temporary{Err: err, Backoff: retryAfter, Away: true}
}

// explain turns the error of a request into one in the user's words. It is a
// *sources.Temporary if another try may help.
func (s *Source) explain(ctx context.Context, err error, what string) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var (
		refused *remoting.Error
		again   *sources.Temporary
	)
	switch fault := brokers.TLSFaultOf(err); {
	case errors.As(err, &again):
		return err
	case fault == brokers.BadCertificate:
		return fmt.Errorf("%s: the certificate is not accepted: check rocketmq.tls.ca and rocketmq.tls.server_name (%w)", what, brokers.NotTheEnd(err))
	case fault == brokers.NotTLS:
		return fmt.Errorf("%s: the server does not speak TLS on this port: check rocketmq.name_servers, or leave rocketmq.tls out (%w)", what, brokers.NotTheEnd(err))
	case fault == brokers.OursRefused:
		return fmt.Errorf("%s: the server refused our side of TLS: check rocketmq.tls.cert and rocketmq.tls.key (%w)", what, brokers.NotTheEnd(err))
	case errors.As(err, &refused):
		return s.refused(refused, what)
	case errors.Is(err, remoting.ErrUnreachable):
		return away(fmt.Errorf("%s: %w", what, brokers.NotTheEnd(err)))
	}
	return fmt.Errorf("%s: %w", what, brokers.NotTheEnd(err))
}

// refused turns the code of an answer into an error.
func (s *Source) refused(e *remoting.Error, what string) error {
	err := fmt.Errorf("%s: %w", what, e)
	switch e.Code {
	case remoting.GroupUnknown:
		return fmt.Errorf("%w: the broker knows no subscription group %q and makes none by itself: create it (mqadmin updateSubGroup -n %s -c CLUSTER -g %s)", err, s.o.group(), s.o.NameServers[0], s.o.group())
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
