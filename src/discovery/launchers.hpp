// SPDX-License-Identifier: Apache-2.0
// The variables of launchers: torchrun and ddprun, Open MPI, MPICH and PMI, Slurm, Kubernetes indexed jobs.
// Pure, except for the environment, which tests replace.
// Sources: the launchers' manuals; the variable names were also read off real Open MPI 4 and MPICH 4 runs.
// Tested by unit/discovery/rendezvous_launchers_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "discovery/rendezvous.hpp"

namespace ddp::bootstrap {

// Slurm's way to write lists of hosts: "n[01-04,7],login1". Only the first host is needed: rank 0 runs there.
/// "" if the list is empty or cannot be read.
[[nodiscard]] std::string first_host(std::string_view nodelist);

/// The values of one launcher; an absent value was not set.
struct Launch {
  std::string launcher;  // "torchrun", "Open MPI", ...; "" without a launcher
  std::optional<int32_t> rank;
  std::optional<int32_t> size;
  std::optional<int32_t> local_rank;
  std::optional<int32_t> local_size;  // ranks on this host
  std::string job;                    // equal on all ranks of one start, different for other starts; "" if unknown
  std::string host;                   // of rank 0, "" if unknown
  std::optional<int32_t> port;
  bool port_may_be_taken = false;
  bool needs_parent = false;  // no job id: the launcher's process tells starts apart

  [[nodiscard]] bool one_host() const noexcept { return local_size.has_value() && local_size == size; }
};

/// The first launcher in the list above that gives a rank and a size, with MASTER_ADDR and MASTER_PORT added. If none gives
/// both: the first that gives one of them. Throws INVALID_ARGUMENT for a variable that is no number.
[[nodiscard]] Launch read_launch(EnvironmentFn environment);

/// "RANK=1, WORLD_SIZE=4": the variables that matter and are set; "none" if none is.
[[nodiscard]] std::string describe_variables(EnvironmentFn environment);

}  // namespace ddp::bootstrap
