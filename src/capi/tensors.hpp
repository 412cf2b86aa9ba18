// SPDX-License-Identifier: Apache-2.0
// The tensors that a program passes to a call: checked, and bound to this rank's GPU if they lie there.
// Tested by capi/group_test.c and gpu_host/group_test.cpp.
#pragma once

#include <optional>
#include <vector>

#include "core/tensor.hpp"
#include "ddp/types.h"
#include "device/gpu/host_memory.hpp"
#include "group/gpu.hpp"
#include "group/group.hpp"

namespace ddp::capi {

/// A tensor in host memory, checked; for calls that take no other.
inline Tensor host_tensor(const ddp_tensor* tensor, const char* what) {
  const Tensor checked = checked_tensor(tensor, what);
  gpu::require_host(checked, what, gpu::kCopyIt);
  return checked;
}

/// The tensor, on any device, checked; for calls that also take tensors on a GPU.
inline Tensor bound_tensor(group::Group& group, const ddp_tensor* tensor, const char* what) {
  Tensor checked = checked_any_tensor(tensor, what);
  group.gpu().bind(checked, what);
  return checked;
}

/// A tensor, on any device, that only rank `root` of a collective gives; nothing on the others.
inline std::optional<Tensor> tensor_of_root(group::Group& group, const ddp_tensor* tensor, int32_t root, const char* what) {
  if (tensor == nullptr || group.rank() != root) return std::nullopt;
  return bound_tensor(group, tensor, what);
}

/// One count for each rank; none if `counts` is NULL.
inline std::vector<int64_t> counts_of(const group::Group& group, const int64_t* counts) {
  return counts == nullptr ? std::vector<int64_t>() : std::vector<int64_t>(counts, counts + group.size());
}

}  // namespace ddp::capi
