// SPDX-License-Identifier: Apache-2.0
// The findings of ddprun --check about a machine: its properties, and those that should be changed, each in one sentence
// with what to do. Reading is separate from judging, which is a pure function. Tested by unit/ddprun/findings_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::ddprun {

/// The state of one property. `kProblem`: a training fails, or is far slower than it need be.
enum class Level { kFine, kAdvice, kProblem };

struct Finding {
  Level level = Level::kFine;
  std::string text;
};

/// Of one machine. -1 and "": unknown.
struct Machine {
  int32_t ranks = 1;  // that run there
  int32_t cores = 1;  // that may be used: affinity and quota
  int32_t cores_of_machine = -1;
  int64_t cache_bytes = -1;  // of the last level, shared by its cores
  int32_t numa_nodes = 1;
  std::string huge_pages;         // the kernel's file, as "always [madvise] never"
  std::string shared_huge_pages;  // the same for shared memory
  int64_t descriptors = -1;       // most that a process may open
  int64_t locked_bytes = -1;      // most memory that a process may lock; INT64_MAX: no limit
  int64_t available_bytes = -1;   // memory
  std::string interface;          // by which the ranks of other machines are reached, with its address; "": one machine
  std::string gpu_driver;         // its version; "": no driver
  std::string library;            // libddp's own version text; "": it was not found
  int64_t slow_start_idle = -1;   // net.ipv4.tcp_slow_start_after_idle
  bool several_machines = false;
};

/// `ranks`: that run here. `other`: the address of rank 0 where there are several machines.
[[nodiscard]] Machine read_machine(int32_t ranks, const std::string& other);

[[nodiscard]] std::vector<Finding> judge(const Machine& machine);

/// As a line of its own each, and back. Lines that are none are left out.
[[nodiscard]] std::string write_findings(const std::vector<Finding>& findings);
[[nodiscard]] std::vector<Finding> read_findings(const std::string& text);

}  // namespace ddp::ddprun
