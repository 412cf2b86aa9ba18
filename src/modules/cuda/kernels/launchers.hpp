// SPDX-License-Identifier: Apache-2.0
// The kernels of the table (device/gpu/gpu_abi.h) as functions, and the list of all of them. Each .cu file has some.
// Threads: any; kernels run on the calling thread's current device.
// Tested by unit/cuda/module_test.cpp.
#pragma once

#include <array>
#include <cstdint>

#include "device/gpu/gpu_abi.h"

namespace ddp::cuda {

/// Addresses of __global__ functions.
struct KernelList {
  const void* const* kernels;
  int64_t count;
};

KernelList move_kernels() noexcept;
KernelList bytes_kernels() noexcept;
KernelList ema_kernels() noexcept;
KernelList adam_kernels() noexcept;
KernelList sgd_kernels() noexcept;
KernelList norm_kernels() noexcept;
KernelList hash_kernels() noexcept;
KernelList moments_kernels() noexcept;
KernelList normalise_kernels() noexcept;
KernelList word_kernels() noexcept;
KernelList tree_kernels() noexcept;
KernelList plan_kernels() noexcept;

std::array<KernelList, 12> all_kernels() noexcept;

/// Sets the table's functions that launch kernels.
void fill_kernels(ddp_gpu_table& table) noexcept;

int32_t move(const ddp_gpu_span* spans, int64_t count, int32_t from_dtype, int32_t to_dtype, double factor, double limit,
             ddp_gpu_stop stop, void* stream) noexcept;
int32_t exchange(const ddp_gpu_span* spans, int64_t count, void* stream) noexcept;
int32_t ema(const ddp_gpu_span* spans, int64_t count, int32_t dtype, double decay, ddp_gpu_stop stop, void* stream) noexcept;
int32_t adam_step(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_adam_rule* rules, int64_t rule_count,
                  int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) noexcept;
int32_t sgd_step(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_sgd_rule* rules, int64_t rule_count,
                 int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) noexcept;
int32_t add_norm_terms(const ddp_gpu_span* spans, int64_t count, int32_t dtype, int32_t p, int64_t* words,
                       void* stream) noexcept;
int32_t largest(const ddp_gpu_span* spans, int64_t count, int32_t dtype, uint64_t* bits, void* stream) noexcept;
int32_t decide(const int64_t* words, double loss_scale, double max_norm, int32_t skip_nonfinite, ddp_gpu_gate* gate,
               void* stream) noexcept;
int32_t hash(const ddp_gpu_span* spans, int64_t count, uint64_t* out, void* stream) noexcept;
int32_t copy_bytes(const ddp_gpu_span* spans, int64_t count, ddp_gpu_stop stop, void* stream) noexcept;
int32_t copy_word(const uint32_t* from, uint32_t* to, void* stream) noexcept;
int32_t move_quotient(const ddp_gpu_span* spans, int64_t count, int32_t from_dtype, int32_t to_dtype, double factor,
                      double divisor, ddp_gpu_stop stop, void* stream) noexcept;
int32_t tree_sum(const ddp_gpu_tree* tree, ddp_gpu_stop stop, void* stream) noexcept;
int32_t plan_step(const ddp_gpu_step* step, ddp_gpu_stop stop, void* stream) noexcept;
int32_t planned_adam(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_planned_rule* rules, int64_t rule_count,
                     int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) noexcept;
int32_t planned_sgd(const ddp_gpu_update* updates, int64_t count, const ddp_gpu_planned_rule* rules, int64_t rule_count,
                    int32_t dtype, const ddp_gpu_shape* shape, ddp_gpu_stop stop, void* stream) noexcept;

int64_t bn_scratch_bytes(const ddp_gpu_batch* batch) noexcept;
int32_t bn_moments(const ddp_gpu_batch* batch, const void* x, double* out, void* scratch, void* stream) noexcept;
int32_t bn_join(const ddp_gpu_bn_join* join, ddp_gpu_stop stop, void* stream) noexcept;
int32_t bn_apply(const ddp_gpu_batch* batch, const void* x, const double* coefficients, void* y, ddp_gpu_stop stop,
                 void* stream) noexcept;
int32_t bn_sums(const ddp_gpu_batch* batch, const void* dy, const void* x, const ddp_gpu_channels* mean, double* out,
                void* scratch, void* stream) noexcept;
int32_t bn_slopes(const ddp_gpu_bn_slopes* slopes, ddp_gpu_stop stop, void* stream) noexcept;
int32_t bn_apply_backward(const ddp_gpu_batch* batch, const void* dy, const void* x, const double* coefficients, void* dx,
                          ddp_gpu_stop stop, void* stream) noexcept;

}  // namespace ddp::cuda
