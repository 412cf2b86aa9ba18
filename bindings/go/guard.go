// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"bytes"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// ErrGoexit is the cause of a call whose callback ended its goroutine instead of returning: runtime.Goexit, as testing's FailNow, Fatal and
// Skip call it. errors.Is finds it in the error of the call.
var ErrGoexit = errors.New("the callback called runtime.Goexit (as t.Fatal and t.FailNow do) instead of returning")

// guard runs the caller's code inside a callback: an error, a panic or a Goexit is kept, because nothing may unwind through C, and is
// the cause of the error of the call that the callback belongs to.
type guard struct {
	mutex sync.Mutex
	cause error
	calls atomic.Int32 // of run, under way
}

// run calls fn on a goroutine of its own and waits for it. Nothing stops a Goexit: on the goroutine that C has called it would unwind C's frames.
func (g *guard) run(fn func() error) (failed bool) {
	g.calls.Add(1)
	defer g.calls.Add(-1)
	ended := make(chan error, 1)
	go func() {
		err := ErrGoexit
		defer func() { ended <- err }()
		err = recovered(fn)
	}()
	if err := <-ended; err != nil {
		g.keep(err)
		return true
	}
	return false
}

// isHere tells whether the caller is inside fn of a run. It looks for run in the goroutine's stack, so it is for calls that are rare.
func (g *guard) isHere() bool {
	return g.calls.Load() > 0 && bytes.Contains(debug.Stack(), []byte(".(*guard).run"))
}

// recovered calls fn and makes an error of a panic.
func recovered(fn func() error) (err error) {
	err = ErrGoexit
	defer func() {
		if reason := recover(); reason != nil {
			err = &PanicError{Value: reason, Stack: debug.Stack()}
		}
	}()
	return fn()
}

func (g *guard) keep(err error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.cause == nil {
		g.cause = err
	}
}

// take gives the first error since the last take.
func (g *guard) take() error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	cause := g.cause
	g.cause = nil
	return cause
}
