// SPDX-License-Identifier: Apache-2.0
// The replacement of a bucket's plain reduction. Set while the model is built and compared between the ranks at
// commit, so that every rank reduces in the same way. A value.
//   kWire      the transport itself sends gradients in another type: F32 and F64 with 16 bits (device/cpu/reduce.hpp, "Two
//              bytes on the wire"), or those of 16 bits between GPUs as F32
//   kCallback  `body` reduces a copy of the bucket with collectives of its own, on the queue (hook_bucket.hpp)
//   kPulled    the same, by the program itself between the calls next_bucket and finish_bucket
// Tested by conformance/wire_hook_test.cpp.
#pragma once

#include <functional>
#include <string>

#include "device/cpu/reduce.hpp"

namespace ddp::parts {

class HookBucket;

struct Hook {
  enum class Kind { kNone, kWire, kCallback, kPulled };

  Kind kind = Kind::kNone;
  std::string name = "none";  // what ranks compare
  ddp_dtype wire = cpu::ReduceRule::kAsItIs;
  std::function<void(HookBucket&)> body{};

  [[nodiscard]] static Hook sent_as(ddp_dtype wire) {
    return Hook{Kind::kWire,
                wire == DDP_F16    ? "wire = DDP_F16"
                : wire == DDP_BF16 ? "wire = DDP_BF16"
                                   : "wire = DDP_F32",
                wire};
  }
  /// Does a bucket of these gradients pass through a copy?
  [[nodiscard]] bool copies() const noexcept { return kind == Kind::kCallback || kind == Kind::kPulled; }
};

}  // namespace ddp::parts
