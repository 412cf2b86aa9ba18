// SPDX-License-Identifier: Apache-2.0
// A training with virtual ranks through the public API that goes on whoever dies, and the same on one rank that has all
// parts. `Training` has commit(), step(number), step_count() and result().
#pragma once

#include "support/on_processes.hpp"
#include "support/public_api.hpp"

namespace ddp::test {

/// One rank has all parts.
template <class Training, class... Arguments>
std::string undisturbed(int32_t parts, int64_t steps, const Arguments&... arguments) {
  ddp_group_options options = patient_options(0, 1);
  options.virtual_ranks = parts;
  ddp_group* const group = create_group("local://undisturbed", options);
  std::string result;
  {
    Training training(group, arguments...);
    OK(training.commit());
    for (int64_t step = 0; step < steps; ++step) OK(training.step(step));
    result = training.result();
  }
  ddp_group_destroy(group);
  return result;
}

/// Recovers as often as it takes. False: the status is no reason for that.
inline bool go_on(ddp_group* group, ddp_status status, Reporter& report) {
  while (status == DDP_ERROR_PEER_FAILED || status == DDP_ERROR_ABORTED) {
    ddp_recovery recovery{};
    recovery.struct_size = sizeof recovery;
    status = ddp_group_recover(group, nullptr, &recovery);
    if (status == DDP_OK) report.say("recovered with " + std::to_string(recovery.size));
  }
  return status == DDP_OK;
}

/// To the end of all steps, with a pause before each; says "committed" and the number of each step that begins.
template <class Training>
std::string survive(ddp_group* group, Training& training, int64_t steps, Reporter& report,
                    std::chrono::milliseconds pause = std::chrono::milliseconds(0)) {
  for (ddp_status status = training.commit(); status != DDP_OK; status = training.commit())
    if (!go_on(group, status, report)) OK(status);
  report.say("committed");
  for (int64_t step = training.step_count(); step < steps; step = training.step_count()) {
    std::this_thread::sleep_for(pause);
    report.say("step " + std::to_string(step));
    if (const ddp_status status = training.step(step); status != DDP_OK && !go_on(group, status, report)) OK(status);
  }
  ddp_status status = ddp_group_barrier(group);
  while (status != DDP_OK && go_on(group, status, report)) status = ddp_group_barrier(group);
  return training.result();
}

}  // namespace ddp::test
