package pulsarwire

import (
	"errors"
	"fmt"
)

// Code is a ServerError of the protocol.
type Code int64

// Codes after which another try does not help.
const (
	AuthenticationError Code = 3
	AuthorizationError  Code = 4
	UnsupportedVersion  Code = 10
	InvalidTopicName    Code = 17
)

// Refused is the broker's answer to a request that it did not do.
type Refused struct {
	Code    Code
	Message string
}

func (e *Refused) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("error %d of the broker", e.Code)
	}
	return e.Message
}

// Damaged is an entry that cannot be decoded.
type Damaged struct{ What string }

func (e *Damaged) Error() string { return e.What }

func damaged(format string, args ...any) error { return &Damaged{fmt.Sprintf(format, args...)} }

// TooLarge is an entry with more bytes, uncompressed, than its reader takes.
type TooLarge struct{ Size, Limit int64 }

func (e *TooLarge) Error() string {
	return fmt.Sprintf("the entry has %d bytes uncompressed, the limit is %d", e.Size, e.Limit)
}

// ErrMoved ends a Reader whose topic the broker does not have any more. A new Reader goes on at
// the broker that has the topic then, or fails because the topic is deleted.
var ErrMoved = errors.New("the broker has closed the reader: the topic is moved, unloaded or deleted")

var errClosed = errors.New("the connections to Pulsar are closed")
