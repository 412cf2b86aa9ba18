// SPDX-License-Identifier: Apache-2.0
// Who runs the processes of a job: this machine, or other machines through the ddpruns that are led there. The supervisor
// thinks in ranks and need not know which.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "ddprun/orders.hpp"
#include "ddprun/report.hpp"

namespace ddp::ddprun {

class Crew {
 public:
  Crew() = default;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  virtual ~Crew() = default;

  /// Start these, the first time or once more; what an ended one has left running ends first. Throws if that fails.
  virtual void start(const std::vector<int32_t>& ranks, Start how) = 0;
  /// Those that have ended since the last call; `rank`, `status`, `lost`, `peak_kib`.
  [[nodiscard]] virtual std::vector<Outcome> collect() = 0;
  /// SIGKILL to whatever was started on this machine.
  virtual void let_go() noexcept = 0;
  /// No rank will be started any more, and none runs.
  virtual void finish() {}
  /// End what is left.
  virtual void end() noexcept = 0;
  [[nodiscard]] virtual std::deque<std::string> last_lines(int32_t rank) const = 0;
};

}  // namespace ddp::ddprun
