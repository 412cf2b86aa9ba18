// SPDX-License-Identifier: Apache-2.0
// Who works on the buckets: a pure decision from what the caller asked for, what the transport can do, and how many cores
// there are.
// A hook blocks, so it has a thread of its own unless the caller asked for its own; buckets that are pulled are driven by
// the program.
// Measured: with as many ranks as cores a helper thread takes its core from the computation, so the ranks reduce for
// themselves.
// Tested by conformance/pass_threads_test.cpp.
#pragma once

#include "collective/progress_queue.hpp"
#include "collective/transport.hpp"
#include "ddp/model.h"
#include "group/group.hpp"
#include "os/cores.hpp"
#include "pass/hook.hpp"

namespace ddp::pass {

[[nodiscard]] inline collective::ProgressQueue::Driver choose_driver(group::Group& group, ddp_progress wanted,
                                                                     const Hook& hook) noexcept {
  if (hook.kind == Hook::Kind::kPulled) return collective::ProgressQueue::Driver::kCaller;
  if (hook.kind == Hook::Kind::kCallback)
    return wanted == DDP_PROGRESS_CALLER ? collective::ProgressQueue::Driver::kCaller
                                         : collective::ProgressQueue::Driver::kThread;
  if (group.size() == 1) return collective::ProgressQueue::Driver::kCaller;
  if (!group.channels().own().pollable() || wanted == DDP_PROGRESS_THREAD) return collective::ProgressQueue::Driver::kThread;
  if (wanted == DDP_PROGRESS_CALLER) return collective::ProgressQueue::Driver::kCaller;
  return 2 * group.size() <= os::usable_cores() ? collective::ProgressQueue::Driver::kThread
                                                : collective::ProgressQueue::Driver::kCaller;
}

}  // namespace ddp::pass
