// SPDX-License-Identifier: Apache-2.0

package low

/*
#include <stdint.h>

// The C side of a callback, as cgo exports it. Qualifiers are missing because Go has none; the calls are the same.
extern void ddpGoLog(uintptr_t user_data, int32_t level, char *text);
extern void ddpGoMessage(uintptr_t user_data, uintptr_t message, char *text);
extern int32_t ddpGoStoreSet(uintptr_t user_data, char *key, void *value, int64_t bytes);
extern int32_t ddpGoStoreGet(uintptr_t user_data, char *key, void *value, int64_t capacity, int64_t timeout_ms,
                             int64_t *out_bytes);
extern int32_t ddpGoUpdate(uintptr_t user_data, uintptr_t slice);
extern int32_t ddpGoHook(uintptr_t user_data, uintptr_t bucket);
extern void ddpGoRelease(uintptr_t user_data);
extern int32_t ddpGoWrite(uintptr_t user_data, void *data, int64_t bytes);
extern int64_t ddpGoRead(uintptr_t user_data, void *data, int64_t capacity);
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// Addresses of the C functions that call the methods below; the user data is a cgo.Handle of the matching interface.
// The methods must not panic: nothing may unwind through C.
var (
	LogFn      = unsafe.Pointer(C.ddpGoLog)
	MessageFn  = unsafe.Pointer(C.ddpGoMessage)
	StoreSetFn = unsafe.Pointer(C.ddpGoStoreSet)
	StoreGetFn = unsafe.Pointer(C.ddpGoStoreGet)
	UpdateFn   = unsafe.Pointer(C.ddpGoUpdate)
	HookFn     = unsafe.Pointer(C.ddpGoHook)
	ReleaseFn  = unsafe.Pointer(C.ddpGoRelease)
	WriteFn    = unsafe.Pointer(C.ddpGoWrite)
	ReadFn     = unsafe.Pointer(C.ddpGoRead)
)

type (
	// Logger receives log messages, from any thread.
	Logger interface {
		Log(level int32, text string)
	}
	// Listener receives log messages with what they are about, from any thread.
	Listener interface {
		Message(message Ddp_log_message, text string)
	}
	// Store is a rendezvous of the caller's.
	Store interface {
		Set(key string, value []byte) int32
		// Get returns a value that fits into capacity bytes, and 0; or 1 when the time is over.
		Get(key string, capacity int, timeoutMs int64) ([]byte, int32)
	}
	// Updater is an optimizer of the caller's.
	Updater interface {
		Update(slice Ddp_update_slice) int32
	}
	// Hooker reduces a bucket, on a thread of the library.
	Hooker interface{ Hook(bucket uintptr) int32 }
	// Writer takes the bytes of a checkpoint, which are C's and valid during the call.
	Writer interface{ Write(data []byte) int32 }
	// Reader fills data with the next bytes of a checkpoint and returns how many, 0 at the end, -1 on failure.
	Reader interface{ Read(data []byte) int64 }
)

//export ddpGoLog
func ddpGoLog(user C.uintptr_t, level C.int32_t, text *C.char) {
	cgo.Handle(user).Value().(Logger).Log(int32(level), C.GoString(text))
}

//export ddpGoMessage
func ddpGoMessage(user, message C.uintptr_t, text *C.char) {
	cgo.Handle(user).Value().(Listener).Message(SwigcptrDdp_log_message(message), C.GoString(text))
}

//export ddpGoStoreSet
func ddpGoStoreSet(user C.uintptr_t, key *C.char, value unsafe.Pointer, size C.int64_t) C.int32_t {
	return C.int32_t(cgo.Handle(user).Value().(Store).Set(C.GoString(key), C.GoBytes(value, C.int(size))))
}

//export ddpGoStoreGet
func ddpGoStoreGet(user C.uintptr_t, key *C.char, value unsafe.Pointer, capacity, timeout C.int64_t, out *C.int64_t) C.int32_t {
	found, status := cgo.Handle(user).Value().(Store).Get(C.GoString(key), int(capacity), int64(timeout))
	if status == 0 {
		*out = C.int64_t(copy(unsafe.Slice((*byte)(value), int(capacity)), found))
	}
	return C.int32_t(status)
}

//export ddpGoUpdate
func ddpGoUpdate(user, slice C.uintptr_t) C.int32_t {
	return C.int32_t(cgo.Handle(user).Value().(Updater).Update(SwigcptrDdp_update_slice(slice)))
}

//export ddpGoHook
func ddpGoHook(user, bucket C.uintptr_t) C.int32_t {
	return C.int32_t(cgo.Handle(user).Value().(Hooker).Hook(uintptr(bucket)))
}

//export ddpGoRelease
func ddpGoRelease(user C.uintptr_t) { cgo.Handle(user).Delete() }

//export ddpGoWrite
func ddpGoWrite(user C.uintptr_t, data unsafe.Pointer, size C.int64_t) C.int32_t {
	return C.int32_t(cgo.Handle(user).Value().(Writer).Write(unsafe.Slice((*byte)(data), int(size))))
}

//export ddpGoRead
func ddpGoRead(user C.uintptr_t, data unsafe.Pointer, capacity C.int64_t) C.int64_t {
	return C.int64_t(cgo.Handle(user).Value().(Reader).Read(unsafe.Slice((*byte)(data), int(capacity))))
}
