// Who works on the buckets: a pure decision from what the caller asked for, what the transport can do, and how many cores there are.
// A hook blocks, so it has a thread of its own unless the caller asked for its own; buckets that are pulled are driven by the program.
// Measured: with as many ranks as cores a helper thread takes its core from the computation, so the ranks reduce for themselves.
// Tested by conformance/pass_threads_test.cpp.
#pragma once

#include "base/cores.hpp"
#include "comm/group.hpp"
#include "comm/lane.hpp"
#include "comm/transport.hpp"
#include "ddp/model.h"
#include "reduce/hook.hpp"

namespace ddp {

[[nodiscard]] inline Lane::Driver choose_driver(Group& group, ddp_progress wanted, const Hook& hook) noexcept {
  if (hook.kind == Hook::Kind::kPulled) return Lane::Driver::kCaller;
  if (hook.kind == Hook::Kind::kCallback) return wanted == DDP_PROGRESS_CALLER ? Lane::Driver::kCaller : Lane::Driver::kThread;
  if (group.size() == 1) return Lane::Driver::kCaller;
  if (!group.transport().pollable() || wanted == DDP_PROGRESS_THREAD) return Lane::Driver::kThread;
  if (wanted == DDP_PROGRESS_CALLER) return Lane::Driver::kCaller;
  return 2 * group.size() <= usable_cores() ? Lane::Driver::kThread : Lane::Driver::kCaller;
}

}  // namespace ddp
