// SPDX-License-Identifier: Apache-2.0
// Which thread works on the buckets: a pure decision from the caller's option, the abilities of the transport, and the
// number of cores. A caller that asks for its own threads gets them, whatever the transport, because functions of the
// program may be bound to them: a language may not be called on others; where the transport blocks, only while there are
// such functions. A hook blocks, so it has a thread of its own otherwise; buckets that are pulled are driven by the program.
// Measured: with as many ranks as cores a helper thread takes its core from the computation, so the ranks reduce for
// themselves. Tested by conformance/pass_test.cpp.
#pragma once

#include "ddp/model.h"
#include "exchange/progress_queue.hpp"
#include "exchange/ranks.hpp"
#include "os/cores.hpp"
#include "pass/part.hpp"

namespace ddp::pass {

[[nodiscard]] inline collective::ProgressQueue::Driver choose_driver(const collective::Ranks& ranks, ddp_progress wanted,
                                                                     const Traits& traits) noexcept {
  using Driver = collective::ProgressQueue::Driver;
  if (traits.pulled) return Driver::kCaller;
  if (wanted == DDP_PROGRESS_CALLER)
    return traits.waits ? Driver::kEnd : ranks.transport().pollable() ? Driver::kProgram : Driver::kThreadOrEnd;
  if (traits.waits) return Driver::kThread;
  if (ranks.size() == 1) return Driver::kCaller;
  if (!ranks.transport().pollable() || wanted == DDP_PROGRESS_THREAD) return Driver::kThread;
  return 2 * ranks.size() <= os::usable_cores() ? Driver::kThread : Driver::kCaller;
}

}  // namespace ddp::pass
