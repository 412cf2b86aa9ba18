/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * A trace of all ranks: what each was doing when, in one file that Perfetto (https://ui.perfetto.dev) and chrome://tracing
 * open; and numbers of the program for those who watch a job. include/TRACE.md shows both. Experimental.
 */
#ifndef DDP_TRACE_H
#define DDP_TRACE_H

#include "ddp/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Options of a trace. Fill with ddp_trace_options_init(). Since 0.1. */
typedef struct ddp_trace_options {
  int64_t struct_size; /**< set by init */
  int64_t capacity;    /**< events that this rank keeps, of 48 bytes each: the newest; 64 to 67,108,864 (default 65,536) */
} ddp_trace_options;

/**
 * Write the defaults.
 * @param options filled; not NULL
 * @param struct_size sizeof(ddp_trace_options) as the caller sees it
 * Local, any thread. Errors: INVALID_ARGUMENT. Since 0.1.
 */
DDP_API ddp_status ddp_trace_options_init(ddp_trace_options *options, int64_t struct_size);

/**
 * Begin a trace: calls, passes, marks, buckets (waiting, reducing), steps, saves, exchanges over the control plane and what
 * GPUs do in their streams are recorded on all ranks from here on. Recording allocates nothing and does not wait. Sub-groups
 * that are made while the group is traced are recorded too.
 * @param path the file that ddp_group_stop_trace writes; rank 0's value counts, other ranks may pass NULL. While the trace
 * is on, each host has a folder `path`.ranks, so the parent folder must exist on all hosts
 * @param options NULL: all defaults
 * While a launcher traces the job (DDP_TRACE) its trace continues, and this trace is a separate one. A rank that dies
 * leaves its last events in the folder. If the group is destroyed, or breaks and is destroyed, without ddp_group_stop_trace,
 * its ranks on each host write the events that the folder holds.
 * Collective. Errors: INVALID_STATE (a trace is on already; a pass is open), INVALID_ARGUMENT, IO (the same on all ranks),
 * and those of collectives. Since 0.1.
 */
DDP_API ddp_status ddp_group_start_trace(ddp_group *group, const char *path, const ddp_trace_options *options);

/**
 * End the trace; rank 0 writes the file, which is there on return. The clocks of ranks on other hosts are aligned by bounds
 * that hold for any network delay; the file has the bound of the error. A trace that cannot be written ends too. Collective.
 * Errors: INVALID_STATE (no rank has a trace that this group began; a pass is open), IO (the same on all ranks), and those
 * of collectives. Since 0.1.
 */
DDP_API ddp_status ddp_group_stop_trace(ddp_group *group);

/**
 * Show a number of the program, such as a loss, to those who watch the job: ddprun has the last value of each rank in its
 * progress line, in --report and in --metrics. Without such a launcher the call only checks its arguments. It may come in
 * every step: no system call, no message to other ranks, and no allocation after the first call of the process.
 * @param name 1 to 63 letters of ASCII, digits, and the characters . _ - / : ("loss", "train/accuracy"). A process has at
 *        most 64 names, in all its groups; values that are logged later under a name replace the one before
 * @param value any number, infinities and NaN too
 * Where ranks are threads of one process (local://), rank 0's values count. A rank that is started again begins without
 * values.
 * Local, never blocks, any thread, also while ddp_group_recover runs or after the group has failed. Errors:
 * INVALID_ARGUMENT (the group, the name, a 65th name), OUT_OF_MEMORY (in the first call). Since 0.1.
 */
DDP_API ddp_status ddp_group_log_metric(ddp_group *group, const char *name, double value);

#ifdef __cplusplus
}
#endif

#endif
