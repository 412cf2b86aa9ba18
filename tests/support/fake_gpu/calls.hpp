// SPDX-License-Identifier: Apache-2.0
// The functions of the tables, by their names there.
#pragma once

#include "device/gpu/gpu_abi.h"

namespace ddp::test::fake_gpu::entry {

int32_t driver_version(int32_t* out_version);
int32_t device_count(int32_t* out_count);
int32_t device_name(int32_t device, char* buffer, int64_t capacity);
int32_t device_is_used(int32_t device, int32_t* out_used);
int32_t get_device(int32_t* out_device);
int32_t set_device(int32_t device);
int32_t synchronize();
int32_t load_kernels();
int32_t relax_capture();
int32_t open_nccl(const char* path, const ddp_nccl_table** out, char* error, int64_t capacity);
int32_t find_nccl(const ddp_nccl_table** out, char* error, int64_t capacity);

int32_t alloc(void** out, int64_t bytes);
int32_t free(void* memory);
int32_t host_alloc(void** out_host, void** out_device, int64_t bytes);
int32_t host_free(void* host);
int32_t pointer_device(const void* memory, int32_t* out_device, int32_t* out_host_reads);

int32_t stream_create(void** out, int32_t high_priority);
int32_t stream_destroy(void* stream);
int32_t stream_synchronize(void* stream);
int32_t stream_is_capturing(void* stream, int32_t* out_capturing);
int32_t stream_capture(void* stream, uint64_t* out_capture);
int32_t event_create(void** out, int32_t timing);
int32_t event_destroy(void* event);
int32_t event_record(void* event, void* stream);
int32_t event_synchronize(void* event);
int32_t event_query(void* event, int32_t* out_done);
int32_t event_elapsed(void* from, void* to, double* out_ms);
int32_t stream_wait(void* stream, void* event);

int32_t copy(void* to, const void* from, int64_t bytes, void* stream);
int32_t fill(void* memory, int32_t byte, int64_t bytes, void* stream);
int32_t move(const ddp_gpu_span* spans, int64_t count, int32_t from_dtype, int32_t to_dtype, double factor, double limit,
             ddp_gpu_stop stop, void* stream);
int32_t exchange(const ddp_gpu_span* spans, int64_t count, void* stream);
int32_t ema(const ddp_gpu_span* spans, int64_t count, int32_t dtype, double decay, ddp_gpu_stop stop, void* stream);
int32_t adam(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_adam_rule* rules, int64_t rule_count, int32_t dtype,
             const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream);
int32_t sgd(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_sgd_rule* rules, int64_t rule_count, int32_t dtype,
            const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream);
int32_t add_norm_terms(const ddp_gpu_span* spans, int64_t count, int32_t dtype, int32_t p, int64_t* words, void* stream);
int32_t largest(const ddp_gpu_span* spans, int64_t count, int32_t dtype, uint64_t* bits, void* stream);
int32_t decide(const int64_t* words, double loss_scale, double max_norm, int32_t skip_nonfinite, ddp_gpu_gate* gate,
               void* stream);
int32_t copy_bytes(const ddp_gpu_span* spans, int64_t count, ddp_gpu_stop stop, void* stream);
int32_t copy_word(const uint32_t* from, uint32_t* to, void* stream);
int32_t move_quotient(const ddp_gpu_span* spans, int64_t count, int32_t from_dtype, int32_t to_dtype, double factor,
                      double divisor, ddp_gpu_stop stop, void* stream);
int32_t tree_sum(const ddp_gpu_tree* tree, ddp_gpu_stop stop, void* stream);
int32_t hash(const ddp_gpu_span* spans, int64_t count, uint64_t* out, void* stream);

int32_t plan_step(const ddp_gpu_step* step, ddp_gpu_stop stop, void* stream);
int32_t planned_adam(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_planned_rule* rules, int64_t rule_count,
                     int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream);
int32_t planned_sgd(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_planned_rule* rules, int64_t rule_count,
                    int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream);
int64_t bn_scratch_bytes(const ddp_gpu_batch* batch);
int32_t bn_moments(const ddp_gpu_batch* batch, const void* x, double* out, void* scratch, void* stream);
int32_t bn_join(const ddp_gpu_bn_join* join, ddp_gpu_stop stop, void* stream);
int32_t bn_apply(const ddp_gpu_batch* batch, const void* x, const double* coefficients, void* y, ddp_gpu_stop stop,
                 void* stream);
int32_t bn_sums(const ddp_gpu_batch* batch, const void* dy, const void* x, const ddp_gpu_channels* mean, double* out,
                void* scratch, void* stream);
int32_t bn_slopes(const ddp_gpu_bn_slopes* slopes, ddp_gpu_stop stop, void* stream);
int32_t bn_apply_backward(const ddp_gpu_batch* batch, const void* dy, const void* x, const double* coefficients, void* dx,
                          ddp_gpu_stop stop, void* stream);

}  // namespace ddp::test::fake_gpu::entry

namespace ddp::test::fake_gpu::nccl_entry {

const char* last_error(void* comm);
int32_t get_unique_id(void* id);
int32_t comm_init(void** out, int32_t size, const void* id, int32_t rank, const char* name, int32_t max_ctas);
int32_t comm_abort(void* comm);
int32_t comm_finalize(void* comm);
int32_t comm_destroy(void* comm);
int32_t comm_async_error(void* comm, int32_t* out_result);
int32_t all_reduce(const void* send, void* receive, int64_t count, int32_t dtype, int32_t reduce, void* comm, void* stream);
int32_t reduce_scatter(const void* send, void* receive, int64_t receive_count, int32_t dtype, int32_t reduce, void* comm,
                       void* stream);
int32_t all_gather(const void* send, void* receive, int64_t send_count, int32_t dtype, void* comm, void* stream);
int32_t broadcast(const void* send, void* receive, int64_t count, int32_t dtype, int32_t root, void* comm, void* stream);
int32_t send(const void* data, int64_t count, int32_t dtype, int32_t peer, void* comm, void* stream);
int32_t receive(void* data, int64_t count, int32_t dtype, int32_t peer, void* comm, void* stream);
int32_t group_start();
int32_t group_end();
int32_t mem_alloc(void** out, int64_t bytes);
int32_t mem_free(void* memory);
int32_t comm_register(void* comm, void* memory, int64_t bytes, void** out_handle);
int32_t comm_deregister(void* comm, void* handle);
int32_t comm_count(void* comm, int32_t* out_size);
int32_t comm_user_rank(void* comm, int32_t* out_rank);
int32_t comm_device(void* comm, int32_t* out_device);

}  // namespace ddp::test::fake_gpu::nccl_entry
