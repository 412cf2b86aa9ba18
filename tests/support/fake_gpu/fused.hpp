// SPDX-License-Identifier: Apache-2.0
// A kernel that reaches the memory of all ranks of a team.
// Tested by unit/fake_gpu/multicast_test.cpp.
#pragma once

#include <functional>
#include <vector>

#include "support/fake_gpu/launch.hpp"

namespace ddp::test::fake_gpu {

/// What a rank's kernel works on, with real addresses: gradients become the sums, then `apply` updates, then values go to
/// all.
struct FusedWork {
  struct Slice {
    const void* grad;  // device addresses
    void* value;
    int64_t bytes;
  };
  std::vector<Slice> slices;
  Work apply;
  bool sound = true;  // false: the arguments are wrong
};

/// `prepare` says what it touches besides, and gives the work.
int32_t launch_fused(const char* name, const ddp_gpu_shape& shape, ddp_gpu_stop stop, void* stream,
                     const std::function<FusedWork(Touches&)>& prepare);

}  // namespace ddp::test::fake_gpu
