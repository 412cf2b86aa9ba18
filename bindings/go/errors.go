// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// Status says what kind of failure an error is. It is itself an error, to be used with errors.Is.
type Status int32

// The kinds of failure. TimedOut, PeerFailed, Aborted and DifferentCalls always break the group; OutOfMemory and Internal may. After any
// error Group.Err says whether it is broken: then every later call on it repeats the first cause, until Group.Recover has returned.
// TooFewRanks, NoMajority and Fenced are of Group.Recover, NoCheckpoint is of State.LoadLatest.
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
	TooFewRanks     Status = 12
	Fenced          Status = 13
	NoCheckpoint    Status = 14
	NoMajority      Status = 15
	DifferentCalls  Status = 16
)

// Error is the name of the status, such as "DDP_ERROR_TIMED_OUT".
func (s Status) Error() string { return low.Ddp_status_name(int32(s)) }

// Error is a failed call: its kind, one sentence that names the culprit, and the same as numbers.
type Error struct {
	Status  Status
	Text    string
	Details ErrorDetails
	cause   error // what the caller's own callback returned
}

// ErrorDetails is what an error is about, as numbers. A list that is empty, a call "" and bytes -1 mean: it is not about that, or not
// known.
type ErrorDetails struct {
	Ranks          []int  // of the group, ascending, at most 128
	RankCount      int    // how many, also if there are more
	Parameters     []int  // their indices, ascending, at most 128
	ParameterCount int    // how many, also if there are more
	Call           string // the collective call that failed, as C names it; of DifferentCalls that of the first of the two ranks
	OtherCall      string // of DifferentCalls that of the second
	BytesExpected  int64  // where sizes differ, of the receiver or the lower rank
	BytesGot       int64  // where sizes differ, of the sender or the other rank
}

func (e *Error) Error() string { return e.Status.Error() + ": " + e.Text }

// Is makes errors.Is(err, ddp.PeerFailed) work, and what Go programs ask of other errors: fs.ErrNotExist where a file or folder, or a
// checkpoint in it, is not there, fs.ErrPermission, and context.Canceled or context.DeadlineExceeded where a context ended the group, on
// whichever rank.
func (e *Error) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Status == NoCheckpoint || e.Status == IO && (e.says("no such file") || e.says("does not exist"))
	case fs.ErrPermission:
		return e.Status == IO && e.says("permission denied")
	case context.Canceled, context.DeadlineExceeded:
		return e.Status == Aborted && e.says(target.Error())
	}
	status, ok := target.(Status)
	return ok && status == e.Status
}

// says tells whether the text, which all ranks have from the one that failed, names this cause.
func (e *Error) says(cause string) bool {
	return strings.Contains(strings.ToLower(e.Text), cause)
}

// Unwrap is the error that the caller's callback returned, if that is what failed.
func (e *Error) Unwrap() error { return e.cause }

func init() {
	low.Fail = func(status int32, text string, d low.Details) error {
		return &Error{Status: Status(status), Text: text, Details: ErrorDetails{
			Ranks: d.Ranks, RankCount: d.RankCount, Parameters: d.Parameters, ParameterCount: d.ParameterCount,
			Call: d.Call, OtherCall: d.OtherCall, BytesExpected: d.BytesExpected, BytesGot: d.BytesGot,
		}}
	}
}

// failure is an error that this package finds before libddp is called.
func failure(status Status, words ...string) error {
	return &Error{Status: status, Text: strings.Join(words, ""), Details: ErrorDetails{BytesExpected: -1, BytesGot: -1}}
}

// PanicError is a panic in a callback of the caller's, which ends the call as an error does.
type PanicError struct {
	Value any    // what was given to panic
	Stack []byte // of the goroutine that panicked, as debug.Stack formats it
}

func (e *PanicError) Error() string { return e.short() + "\n\n" + string(e.Stack) }

// Unwrap is the value, if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

func (e *PanicError) short() string { return oneLine(fmt.Sprint("panic: ", e.Value)) }

// brief is an error as other ranks are told: without a stack.
func brief(err error) string {
	var panicked *PanicError
	if errors.As(err, &panicked) {
		return panicked.short()
	}
	return oneLine(err.Error())
}

// caused adds what a callback returned to the error of the call that it failed in, which may have its text already.
func caused(err, cause error) error {
	var failed *Error
	if cause == nil || !errors.As(err, &failed) {
		return err
	}
	text := failed.Text
	if !strings.Contains(text, brief(cause)) {
		text += ": " + brief(cause)
	}
	var panicked *PanicError
	if errors.As(cause, &panicked) {
		text += "\n\n" + string(panicked.Stack)
	}
	return &Error{Status: failed.Status, Text: text, Details: failed.Details, cause: cause}
}

// oneLine is a text for C and for other ranks: it would end at a NUL.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == 0 || r == '\n' }), " ")
}

// noNUL refuses a name that C would cut off at its first NUL.
func noNUL(what, text string) error {
	if strings.IndexByte(text, 0) >= 0 {
		return failure(InvalidArgument, fmt.Sprintf("%s %q has a NUL in it, where C's texts end", what, text))
	}
	return nil
}
