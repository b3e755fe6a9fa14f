package remoting

import (
	"errors"
	"fmt"
)

// Codes of answers.
const (
	OK                = 0
	SystemError       = 1
	SystemBusy        = 2
	unsupported       = 3
	NoPermission      = 16
	TopicUnknown      = 17
	NoSlave           = 11 // a message is stored, and no slave is there to have it too
	PullNotFound      = 19 // at the head
	PullRetry         = 20 // no message matched, or messages are being removed
	PullMoved         = 21 // below the minimum or above the maximum
	NoOffset          = 22
	SubscriptionWrong = 23
	SubscriptionNone  = 24
	GroupUnknown      = 26
	QueueUnknown      = 29
	FlowControl       = 215
)

// Error is an answer that refuses.
type Error struct {
	Addr   string
	Code   int
	Remark string
}

func (e *Error) Error() string {
	if e.Remark == "" {
		return fmt.Sprintf("RocketMQ at %s answers code %d", e.Addr, e.Code)
	}
	return fmt.Sprintf("RocketMQ at %s answers code %d: %s", e.Addr, e.Code, e.Remark)
}

// CodeOf is the code of an *Error in err, else -1.
func CodeOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return -1
}

// ErrUnreachable: a name server or broker cannot be reached, or does not answer.
var ErrUnreachable = errors.New("does not answer")

type unreachableError struct {
	addr string
	err  error
}

func unreachable(addr string, err error) error { return &unreachableError{addr, err} }

func (e *unreachableError) Error() string {
	return fmt.Sprintf("RocketMQ at %s does not answer: %v", e.addr, e.err)
}

// Unwrap leaves out io.EOF, which is no end of data here.
func (e *unreachableError) Unwrap() []error { return []error{ErrUnreachable, notEOF(e.err)} }
