/* SPDX-License-Identifier: Apache-2.0 */
/* The fake GPU in the file libddp_cuda.so of the build, for programs that use libddp's public API alone (C, Python): what
 * they say to it and ask of it. fake_gpu.hpp defines the words. Link the file, or open it with dlopen: it is the copy
 * that libddp opens when DDP_MODULE_PATH names its folder. The table itself is there too: ddp_gpu_query.
 */
#ifndef DDP_FAKE_GPU_CONTROL_H
#define DDP_FAKE_GPU_CONTROL_H

#include "device/gpu/gpu_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DDP_FAKE_GPU_API __attribute__((visibility("default")))

DDP_FAKE_GPU_API const ddp_gpu_table *ddp_gpu_query(int32_t version);

DDP_FAKE_GPU_API void ddp_fake_gpu_reset(int32_t devices, uint64_t seed);
DDP_FAKE_GPU_API void ddp_fake_gpu_set_device_count(int32_t count);
DDP_FAKE_GPU_API void ddp_fake_gpu_set_driver_version(int32_t version);
DDP_FAKE_GPU_API void ddp_fake_gpu_lose_device(int32_t device);
/* The nth call of `function` from now on, and times - 1 after it, fail; device -1: on any. */
DDP_FAKE_GPU_API void ddp_fake_gpu_inject(const char *function, int64_t nth, int64_t times, int32_t kind, int32_t device);
/* Not NULL or empty: opening NCCL fails with that. */
DDP_FAKE_GPU_API void ddp_fake_gpu_set_open_nccl_error(const char *text);
DDP_FAKE_GPU_API void ddp_fake_gpu_set_async_error(int32_t device, int32_t kind);

/* Violations since the last clear; one is copied, as far as it fits, with an end of string. */
DDP_FAKE_GPU_API int64_t ddp_fake_gpu_violations(void);
DDP_FAKE_GPU_API void ddp_fake_gpu_violation(int64_t index, char *buffer, int64_t capacity);
DDP_FAKE_GPU_API void ddp_fake_gpu_clear_violations(void);

/* Allocations, pinned blocks, streams, events, communicators and registrations that live. */
DDP_FAKE_GPU_API int64_t ddp_fake_gpu_live(void);
DDP_FAKE_GPU_API int64_t ddp_fake_gpu_calls(const char *function);
DDP_FAKE_GPU_API int64_t ddp_fake_gpu_host_waits(void);
DDP_FAKE_GPU_API int64_t ddp_fake_gpu_allocations(void);
DDP_FAKE_GPU_API void ddp_fake_gpu_clear_log(void);
DDP_FAKE_GPU_API void ddp_fake_gpu_log(int64_t index, char *buffer, int64_t capacity); /* an empty text behind the last */

DDP_FAKE_GPU_API void ddp_fake_gpu_pause_device(int32_t device);
DDP_FAKE_GPU_API void ddp_fake_gpu_resume_device(int32_t device);
DDP_FAKE_GPU_API int32_t ddp_fake_gpu_wait_idle(int64_t limit_ms); /* 1: everything is done */
/* Copy at once, whatever runs. 0: that is no live memory. */
DDP_FAKE_GPU_API int32_t ddp_fake_gpu_peek(void *to, const void *device_memory, int64_t bytes);
DDP_FAKE_GPU_API int32_t ddp_fake_gpu_poke(void *device_memory, const void *from, int64_t bytes);

DDP_FAKE_GPU_API int32_t ddp_fake_gpu_begin_capture(void *stream);
/* What was captured; NULL: the capture was spoiled. */
DDP_FAKE_GPU_API void *ddp_fake_gpu_end_capture(void *stream);
DDP_FAKE_GPU_API void ddp_fake_gpu_launch_graph(void *graph, void *stream);
DDP_FAKE_GPU_API void ddp_fake_gpu_destroy_graph(void *graph);

#ifdef __cplusplus
}
#endif
#endif
