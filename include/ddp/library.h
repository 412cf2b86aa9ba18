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

/** A message of the log. Since 0.1. */
typedef struct ddp_log_message {
  int64_t struct_size; /**< set by the library: sizeof(ddp_log_message) as it knows it */
  ddp_log_level level; /**< never DDP_LOG_OFF */
  ddp_status code;     /**< of the error that the message reports; DDP_OK: it reports none */
  int64_t group;       /**< ddp_group_get_number of the group that the message is about; 0: of none, or not known */
  int32_t rank;        /**< of this process in that group; -1: not known yet, or no group */
  int32_t reserved;    /**< 0 */
} ddp_log_message;

/**
 * Receives log messages (ddp_add_log_listener). Called from any thread, one message at a time in the whole process. It may
 * call ddp_add_log_listener, ddp_remove_log_listener (also for itself) and ddp_set_log; it must not make other calls of
 * libddp, nor wait for a thread that does. A message that libddp logs on the same thread meanwhile goes to stderr alone. If
 * a C++ exception leaves it, the line goes to stderr. A forked child logs to the same functions. `message` and `text`, which
 * is one line without a newline, are valid during the call.
 */
typedef void (*ddp_log_listener_fn)(void *user_data, const ddp_log_message *message, const char *text);

/**
 * What an error is about, as numbers: ddp_get_error_details. A program reads them in the place of the text, which may
 * change. Since 0.1.
 */
typedef struct ddp_error_details {
  int64_t struct_size;     /**< set by the caller */
  ddp_status status;       /**< that the failed call has returned; DDP_OK: no call has failed on this thread */
  int32_t rank_count;      /**< ranks that the error is about, see ddp_get_error_ranks */
  int32_t parameter_count; /**< parameters that it is about, see ddp_get_error_parameters */
  int32_t call;            /**< the collective call that failed, for ddp_call_name(); of DIFFERENT_CALLS, that of the first
                              of the two ranks. 0: the call was not collective */
  int32_t other_call;      /**< of DIFFERENT_CALLS, that of the second of the two ranks; else 0 */
  int32_t reserved;        /**< 0 */
  int64_t bytes_expected;  /**< where sizes differ, of the receiver or the lower rank; -1: it is not about sizes */
  int64_t bytes_got;       /**< where sizes differ, of the sender or the other rank; -1 */
} ddp_error_details;

/** Most ranks, and most parameters, that ddp_get_error_ranks and ddp_get_error_parameters list. */
#define DDP_MAX_ERROR_LIST 128

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
 * Numbers of the last call that failed on this thread, which ddp_last_error() describes. They are replaced by the next call
 * that fails on this thread; a call that succeeds does not touch them.
 *
 * - parameters that were not marked: the ranks that did not mark them, or that abandoned the pass; the parameters, of each
 *   rank the first 1,024;
 * - MISMATCH of replicas: the ranks in the minority, or all if no content is on most ranks; all parameters that differ;
 * - MISMATCH of ddp_model_commit: the ranks that differ from rank 0; the first parameter that differs, with its bytes;
 * - any other MISMATCH: the ranks that differ from rank 0, or the ranks of the message, with its bytes;
 * - PEER_FAILED and ABORTED: the rank that died, failed or left; TIMED_OUT: the ranks that are late;
 * - DIFFERENT_CALLS: two ranks and both calls; bytes, if the same call has other sizes;
 * - TOO_FEW_RANKS: the ranks that are dead; NO_MAJORITY: those that are out of reach.
 * @param out_details filled; struct_size set by the caller
 * Local, any thread. Errors: INVALID_ARGUMENT (which replaces the error that was asked for). Since 0.1.
 */
DDP_API ddp_status ddp_get_error_details(ddp_error_details *out_details);

/**
 * The ranks of ddp_get_error_details, in the group of the failed call.
 * @param ranks filled with at most `capacity` ranks, ascending, of at most DDP_MAX_ERROR_LIST; NULL if capacity is 0
 * @param out_count how many ranks the error is about, whatever the capacity, also if it is more than DDP_MAX_ERROR_LIST
 * Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_get_error_ranks(int32_t *ranks, int32_t capacity, int32_t *out_count);

/**
 * The parameters of ddp_get_error_details, as their indices in the model of the failed call.
 * @param indices filled with at most `capacity` indices, ascending, of at most DDP_MAX_ERROR_LIST; NULL if capacity is 0
 * @param out_count how many parameters the error is about, whatever the capacity
 * Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_get_error_parameters(int32_t *indices, int32_t capacity, int32_t *out_count);

/** Name of a call as in ddp_error_details and ddp_rank_progress: "ddp_group_barrier"; "" for 0 and for any other number.
 * Constant text; the numbers may be others in another version of the library. Local, any thread. Since 0.1. */
DDP_API const char *ddp_call_name(int32_t call);

/**
 * Choose where log messages go. Listeners (ddp_add_log_listener) get them too, whatever is set here.
 * Without a call messages of WARNING and above go to stderr; DDP_LOG=debug|info|warning|error|off changes the level.
 * @param min_level messages below it are dropped
 * @param fn receiver; NULL restores stderr
 * @param user_data handed to fn
 * Local, any thread; returns when no call of the former receiver is in progress.
 * Errors: INVALID_ARGUMENT (unknown level). Since 0.1.
 */
DDP_API ddp_status ddp_set_log(ddp_log_level min_level, ddp_log_fn fn, void *user_data);

/**
 * Add a receiver of log messages, for a library or a framework that shares the process with others. Every listener gets each
 * message of its level and above, in the order in which they were added.
 * @param min_level messages below it are dropped; DDP_LOG_OFF: all
 * @param fn receiver; not NULL. The same function may be added several times
 * @param user_data handed to fn; the caller's, until ddp_remove_log_listener has returned
 * @param out_listener its number, for ddp_remove_log_listener
 * Local, any thread, also inside a listener, which does not get the message that is being handed over.
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY (64 listeners are there). Since 0.1.
 */
DDP_API ddp_status ddp_add_log_listener(ddp_log_level min_level, ddp_log_listener_fn fn, void *user_data,
                                        int64_t *out_listener);

/**
 * Remove a listener. When this returns it is not running, and is never called again. Inside the listener itself, on the same
 * thread: it is not called again when that call has returned.
 * @param listener of ddp_add_log_listener; 0 and a number that was removed already are ignored
 * Local, any thread; waits for a message that is being handed over on another thread. Errors: INVALID_ARGUMENT (a number
 * that was never given out). Since 0.1.
 */
DDP_API ddp_status ddp_remove_log_listener(int64_t listener);

#ifdef __cplusplus
}
#endif
#endif
