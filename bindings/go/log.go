// SPDX-License-Identifier: Apache-2.0

package ddp

import (
	"runtime/cgo"
	"sync"

	"github.com/libddp/libddp/bindings/go/internal/low"
)

// LogLevel is the severity of a log message.
type LogLevel int32

// The levels.
const (
	LogDebug   LogLevel = 0
	LogInfo    LogLevel = 1
	LogWarning LogLevel = 2
	LogError   LogLevel = 3
	LogOff     LogLevel = 4
)

type logger func(level LogLevel, text string)

// Log drops what goes wrong in the receiver: no call of the caller's is there to report it.
func (l logger) Log(level int32, text string) {
	var g guard
	g.run(func() error {
		l(LogLevel(level), text)
		return nil
	})
}

// What libddp's only process-wide setting holds of Go's.
var (
	logMutex  sync.Mutex
	logHandle cgo.Handle
)

// SetLog chooses where log messages from a level on go; nil restores stderr. The receiver is called from any thread, one message
// at a time, and must not call this package.
func SetLog(level LogLevel, receiver func(level LogLevel, text string)) error {
	logMutex.Lock()
	defer logMutex.Unlock()
	var handle cgo.Handle
	fn := low.LogFn
	if receiver == nil {
		fn = nil
	} else {
		handle = cgo.NewHandle(low.Logger(logger(receiver)))
	}
	err := low.Ddp_set_log(int32(level), fn, uintptr(handle))
	if err == nil {
		logHandle, handle = handle, logHandle // the former receiver is not called any more
	}
	if handle != 0 {
		handle.Delete()
	}
	return err
}
