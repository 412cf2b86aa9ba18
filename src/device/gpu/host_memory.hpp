// SPDX-License-Identifier: Apache-2.0
// Can the host read memory that is lent as the host's? A pointer of cudaMalloc where host memory is expected is a likely
// mistake, and reading it ends the process.
// The module is asked if it is open, else the NVIDIA driver if it is in the process; without both, the process has no memory
// of a GPU. Managed and page-locked memory are the host's too. A fork of the process that opened them does not ask. Cost:
// some 70 ns without a driver. Threads: any. Tested by gpu/lent_memory_test.cpp and gpu_host/driver_test.sh.
#pragma once

#include <cstdint>

#include "core/tensor.hpp"

namespace ddp::gpu {

/// The GPU whose memory it is, if the host cannot read it; -1: it can, or this is unknown.
[[nodiscard]] int32_t hidden_on(const void* memory) noexcept;

/// What to do instead, in the text of require_host.
inline constexpr char kDescribeIt[] = "describe it by a ddp_tensor with device = DDP_CUDA and that device_index";
inline constexpr char kCopyIt[] = "this call takes host memory; copy it there first";

/// Throws INVALID_ARGUMENT if the host cannot read a tensor that is declared to be in host memory; `what` names it.
void require_host(const Tensor& tensor, const char* what, const char* instead = kDescribeIt);

/// Throws NOT_SUPPORTED if the NVIDIA driver, where it is in the process, knows any page of this memory:
/// memory of a GPU, managed memory, and memory of the host that was registered for copies.
void require_unregistered(const void* memory, int64_t bytes, const char* function);

}  // namespace ddp::gpu
