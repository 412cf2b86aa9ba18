// SPDX-License-Identifier: Apache-2.0
// From a rendezvous text and options to a connected control plane: parse, find rank and size, find rank 0, meet.
// Tested by unit/discovery/rendezvous_*_test.cpp and process/rendezvous_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "control/control.hpp"
#include "control/opening.hpp"
#include "ddp/group.h"

namespace ddp::bootstrap {

/// Where a rank meets the others, and its rank and size: the values of the environment and the options.
struct Meeting {
  enum class Kind { kEnvironment, kTcp, kFile, kLocal, kStore };
  Kind kind = Kind::kEnvironment;
  std::string place;       // host:port, path or local name
  std::string group_name;  // text after '#', "" if none
  int32_t rank = 0;
  int32_t size = 1;
  int32_t local_rank = 0;
  bool port_may_be_taken = false;  // torchrun's agent listens on MASTER_PORT itself: take a port after it
  std::string job;  // of the launcher: equal on all ranks of one start, "" if unknown; other starts are passed over
  bool private_place = false;  // kFile: `place` is a name in a private directory of this user on this host
  bool needs_parent = false;   // private_place: the launcher's process completes the name
  int32_t world_rank = -1;     // of a rank in a sub-group, as in Member
};

/// Looks up an environment variable; NULL if unset. Replaced in tests.
using EnvironmentFn = const char* (*)(const char* name);

/// Pure, except for `environment`. Throws INVALID_ARGUMENT with the found and the missing values.
[[nodiscard]] Meeting resolve_meeting(const char* rendezvous, const ddp_group_options& options, EnvironmentFn environment);

/// Meet all ranks; blocks up to options.rendezvous_timeout_ms. For a size of 1 nothing is opened. The first gather has to be
/// the `opening`, if there is one; its answer is there sooner then.
[[nodiscard]] std::unique_ptr<Control> meet(const Meeting& meeting, const ddp_group_options& options,
                                            std::optional<Opening> opening = {});

/// Ranks that have a group already meet as a new one, without a rendezvous: rank 0 opens a place, and what open() returns is
/// given to join() on every rank. One thread.
class Reunion {
 public:
  /// `meeting`: rank, size, world rank, and kLocal for threads. `check` is called several times a second while ranks wait;
  /// what it throws ends the wait.
  Reunion(Meeting meeting, const ddp_group_options& options, std::function<void()> check);
  ~Reunion();
  Reunion(const Reunion&) = delete;
  Reunion& operator=(const Reunion&) = delete;

  /// Rank 0: listen at this numeric address. Threads need none.
  [[nodiscard]] std::string open(const std::string& address);
  [[nodiscard]] std::unique_ptr<Control> join(const std::string& record);

 private:
  struct Opened;
  Meeting meeting_;
  ddp_group_options options_;
  std::function<void()> check_;
  std::unique_ptr<Opened> opened_;
};

}  // namespace ddp::bootstrap
