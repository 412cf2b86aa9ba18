/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The library itself: its version, the text of the last error, the log.
 */
#ifndef DDP_LIBRARY_H
#define DDP_LIBRARY_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Severity of a log message. Since 0.1. */
typedef enum ddp_log_level DDP_INT32 {
  DDP_LOG_DEBUG = 0,
  DDP_LOG_INFO = 1,
  DDP_LOG_WARNING = 2,
  DDP_LOG_ERROR = 3,
  DDP_LOG_OFF = 4
} ddp_log_level;

/**
 * Receives log messages. Called from any thread, one message at a time; must not call libddp.
 * `text` is one line without a newline, valid during the call. If a C++ exception leaves it, the line goes to stderr
 * instead. A forked child logs to the same function.
 */
typedef void (*ddp_log_fn)(void *user_data, ddp_log_level level, const char *text);

/** Version of the loaded library, packed as DDP_VERSION is. Local, any thread, cannot fail. Since 0.1. */
DDP_API int32_t ddp_version(void);

/** Version of the loaded library as text, such as "0.1.0". The library's own, valid for ever. Local, any thread.
 * Since 0.1. */
DDP_API const char *ddp_version_string(void);

/**
 * One line: version, compiler, build type, instruction set in use, and for each module (Gloo, CUDA) the file that was found
 * when this was called first, or that it was not built. A module that was found may still fail to load. For people and bug
 * reports: the form may change. The library's own, valid for ever; "" if memory runs out. Local, any thread. Since 0.1.
 */
DDP_API const char *ddp_build_info(void);

/** Name of a status code, such as "DDP_ERROR_TIMED_OUT"; never NULL. Local, any thread. Since 0.1. */
DDP_API const char *ddp_status_name(ddp_status status);

/**
 * Text of the last call that failed on this thread: one sentence that names the culprit; "" if none failed.
 * A call that succeeds does not touch it. Valid until this thread's next failing ddp call. Local, any thread. Since 0.1.
 */
DDP_API const char *ddp_last_error(void);

/**
 * Copy ddp_last_error() into the caller's memory, cut to fit and always terminated.
 * @param buffer at least `capacity` bytes; NULL is allowed when capacity is 0
 * @param capacity bytes available
 * @return bytes the whole text needs with its terminator. Local, any thread, cannot fail. Since 0.1.
 */
DDP_API int64_t ddp_copy_last_error(char *buffer, int64_t capacity);

/**
 * Choose where log messages go. The only process-wide setting of the library.
 * Without a call messages of WARNING and above go to stderr; DDP_LOG=debug|info|warning|error|off changes the level.
 * @param min_level messages below it are dropped
 * @param fn receiver; NULL restores stderr
 * @param user_data handed to fn
 * Local, any thread; returns when no call of the former receiver is in progress.
 * Errors: INVALID_ARGUMENT (unknown level). Since 0.1.
 */
DDP_API ddp_status ddp_set_log(ddp_log_level min_level, ddp_log_fn fn, void *user_data);

#ifdef __cplusplus
}
#endif
#endif
