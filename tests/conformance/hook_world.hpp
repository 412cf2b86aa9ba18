// SPDX-License-Identifier: Apache-2.0
// A model with a hook of the program, called or pulled. The oracle is that of conformance/pass_world.hpp.
#pragma once

#include "conformance/pass_world.hpp"
#include "conformance/wire_world.hpp"
#include "model/pulled.hpp"
#include "model/uneven.hpp"

namespace ddp::test {

using HookBody = std::function<void(parts::HookBucket&)>;

inline parts::Hook callback(HookBody body) {
  parts::Hook hook;
  hook.kind = parts::Hook::Kind::kCallback;
  hook.name = "a callback";
  hook.body = std::move(body);
  return hook;
}

inline parts::Hook pulled() {
  parts::Hook hook;
  hook.kind = parts::Hook::Kind::kPulled;
  hook.name = "pulled";
  return hook;
}

/// One parameter is larger than a message.
inline const std::vector<int64_t> kHookShapes = {1, 17, 1000, 3, 90'000, 128, 77};

struct HookWorld : PassWorld {
  HookWorld(group::Group& group, const parts::Hook& hook, ddp_progress progress = DDP_PROGRESS_AUTO,
            ddp_unused unused = DDP_UNUSED_ERROR)
      : PassWorld(group, Memory::kMixed, options_of(progress, unused), hook, kHookShapes) {}
  static ddp_model_options options_of(ddp_progress progress, ddp_unused unused) {
    ddp_model_options options = model_options();
    options.progress = progress;
    options.unused = unused;
    return options;
  }
  void mark(int rank, int pass) const {
    fill(rank, pass);
    begin();
  }
};

inline void average(parts::HookBucket& bucket) { bucket.all_reduce(bucket.contents(), DDP_AVERAGE); }

}  // namespace ddp::test
