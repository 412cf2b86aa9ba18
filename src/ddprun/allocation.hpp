// SPDX-License-Identifier: Apache-2.0
// The machines that a batch system has allocated to this job, from the environment: Slurm, PBS (Torque, OpenPBS).
// Pure functions of the environment and of files that it names.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/options.hpp"

namespace ddp::ddprun {

struct Allocation {
  std::string system;       // "Slurm", "PBS"
  std::string name;         // of the variable that names the machines, for texts
  std::vector<Host> hosts;  // ranks that the batch system has planned there; 0: unknown
};

/// A variable, or NULL; the text of a file, or nothing if it cannot be read.
using VariableFn = std::function<const char*(const char*)>;
using FileFn = std::function<std::optional<std::string>(const std::string&)>;

/// Nothing outside an allocation, and inside a step (srun) or an mpirun, whose processes are ranks already. Throws ExitError
/// if the machines are named in a way that cannot be read.
[[nodiscard]] std::optional<Allocation> find_allocation(const VariableFn& variable, const FileFn& file);

/// "n[01-03,7],login1" as Slurm writes it; empty if it cannot be read.
[[nodiscard]] std::vector<std::string> expand_nodelist(const std::string& text);

/// "2(x3),1": 2, 2, 2, 1; empty if it cannot be read.
[[nodiscard]] std::vector<int32_t> expand_counts(const std::string& text);

}  // namespace ddp::ddprun
