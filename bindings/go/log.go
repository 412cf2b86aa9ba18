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

// LogMessage is a message of the log.
type LogMessage struct {
	Level LogLevel
	Text  string
	Code  Status // of the error that it reports; 0: it reports none
	Group int64  // Group.Number of the group that it is about; 0: of none, or not known
	Rank  int    // of this process in that group; -1: not known
}

type listener func(message LogMessage)

// Message drops what goes wrong in the receiver, as Log does.
func (l listener) Message(m low.Ddp_log_message, text string) {
	var g guard
	g.run(func() error {
		l(LogMessage{Level: LogLevel(m.GetLevel()), Text: text, Code: Status(m.GetCode()), Group: m.GetGroup(), Rank: int(m.GetRank())})
		return nil
	})
}

// AddLogListener adds a receiver of log messages of a level and above, beside the others of the process. It is called from any thread,
// one message at a time, and must not call this package. The function that comes back removes it: when that returns, the receiver is
// not running and is not called again. It may be called several times, and not by the receiver.
func AddLogListener(level LogLevel, receiver func(message LogMessage)) (remove func(), err error) {
	if receiver == nil {
		return nil, failure(InvalidArgument, "the receiver of the log is nil")
	}
	handle := cgo.NewHandle(low.Listener(listener(receiver)))
	var number int64
	if err := low.Ddp_add_log_listener(int32(level), low.MessageFn, uintptr(handle), &number); err != nil {
		handle.Delete()
		return nil, err
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			_ = low.Ddp_remove_log_listener(number) // it was given out
			handle.Delete()
		})
	}, nil
}
