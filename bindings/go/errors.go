package ddp

import (
	"errors"
	"strings"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Status says what kind of failure an error is. It is itself an error, to be used with errors.Is.
type Status int32

// The kinds of failure. TimedOut, PeerFailed and Aborted break the group: every later call on it repeats the first cause.
const (
	InvalidArgument Status = 1
	InvalidState    Status = 2
	NotSupported    Status = 3
	OutOfMemory     Status = 4
	TimedOut        Status = 5
	PeerFailed      Status = 6
	Aborted         Status = 7
	Mismatch        Status = 8
	IO              Status = 9
	Callback        Status = 10
	Internal        Status = 11
)

// Error is the name of the status, such as "DDP_ERROR_TIMED_OUT".
func (s Status) Error() string { return low.Ddp_status_name(int32(s)) }

// Error is a failed call: its kind, and one sentence that names the culprit.
type Error struct {
	Status Status
	Text   string
	cause  error // what the caller's own callback returned
}

func (e *Error) Error() string { return e.Status.Error() + ": " + e.Text }

// Is makes errors.Is(err, ddp.PeerFailed) work.
func (e *Error) Is(target error) bool {
	status, ok := target.(Status)
	return ok && status == e.Status
}

// Unwrap is the error that the caller's callback returned, if that is what failed.
func (e *Error) Unwrap() error { return e.cause }

func init() {
	low.Fail = func(status int32, text string) error { return &Error{Status: Status(status), Text: text} }
}

// failure is an error that this package finds before libddp is called.
func failure(status Status, words ...string) error {
	return &Error{Status: status, Text: strings.Join(words, "")}
}

// caused adds what a callback returned to the error of the call that it failed in.
func caused(err, cause error) error {
	var failed *Error
	if cause != nil && errors.As(err, &failed) {
		return &Error{Status: failed.Status, Text: failed.Text + ": " + cause.Error(), cause: cause}
	}
	return err
}
