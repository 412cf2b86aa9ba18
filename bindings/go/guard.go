// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime/debug"
	"sync"
)

// guard runs the caller's code inside a callback: an error or a panic is kept, because nothing may unwind through C, and is
// told by the call that the callback belongs to.
type guard struct {
	mutex sync.Mutex
	cause error
}

func (g *guard) run(fn func() error) (failed bool) {
	defer func() {
		if reason := recover(); reason != nil {
			g.keep(&PanicError{Value: reason, Stack: debug.Stack()})
			failed = true
		}
	}()
	if err := fn(); err != nil {
		g.keep(err)
		return true
	}
	return false
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
