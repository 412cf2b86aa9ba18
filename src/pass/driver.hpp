// SPDX-License-Identifier: Apache-2.0
// Which thread works on the buckets: a pure decision from the caller's option, the abilities of the transport, and the
// number of cores. A caller that asks for its own threads gets them, whatever the transport, because functions of the
// program may be bound to them: a language may not be called on others; where the transport blocks, only while there are
// such functions. A hook blocks, so it has a thread of its own otherwise; buckets that are pulled are driven by the program.
// Measured: with as many ranks as cores a helper thread takes its core from the computation, so the ranks reduce for
// themselves. Tested by conformance/pass_threads_test.cpp.
#pragma once

#include "ddp/model.h"
#include "exchange/progress_queue.hpp"
#include "exchange/transport.hpp"
#include "group/group.hpp"
#include "os/cores.hpp"
#include "pass/hook.hpp"

namespace ddp::pass {

[[nodiscard]] inline collective::ProgressQueue::Driver choose_driver(group::Group& group, ddp_progress wanted,
                                                                     const Hook& hook) noexcept {
  using Driver = collective::ProgressQueue::Driver;
  if (hook.kind == Hook::Kind::kPulled) return Driver::kCaller;
  const bool is_pollable = group.channels().own().pollable();
  if (wanted == DDP_PROGRESS_CALLER)
    return hook.kind == Hook::Kind::kCallback ? Driver::kEnd : is_pollable ? Driver::kProgram : Driver::kThreadOrEnd;
  if (hook.kind == Hook::Kind::kCallback) return Driver::kThread;
  if (group.size() == 1) return Driver::kCaller;
  if (!is_pollable || wanted == DDP_PROGRESS_THREAD) return Driver::kThread;
  return 2 * group.size() <= os::usable_cores() ? Driver::kThread : Driver::kCaller;
}

}  // namespace ddp::pass
