// SPDX-License-Identifier: Apache-2.0
// Which processors each rank of this machine may run on. Memory is given by the kernel on the NUMA node of the processor
// that first writes to it, so a rank that is bound before its program begins has its shared memory on its own node. Pure
// functions, except the two that read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::ddprun {

enum class Bind { kAuto, kCore, kNuma, kNone };

/// Numbers of hardware threads, ascending.
using Processors = std::vector<int32_t>;

/// What of a machine may be used.
struct Topology {
  std::vector<Processors> nodes;  // NUMA nodes that have processors
  std::vector<Processors> cores;  // the hardware threads of each core; node after node
};

/// "0-3,8" as the kernel writes it; empty if it cannot be read.
[[nodiscard]] Processors parse_processors(const std::string& text);
/// The same back.
[[nodiscard]] std::string to_text(const Processors& processors);

/// Those that this process may use; empty if the kernel does not say.
[[nodiscard]] Processors usable_processors();
/// `root`: "/sys/devices/system". Missing files are taken for one node, and for cores of one thread.
[[nodiscard]] Topology read_topology(const std::string& root, const Processors& usable);

/// By local rank; empty: not bound. Neighbours share a node. kAuto is kNuma on a machine with several nodes and several
/// ranks, else kNone.
[[nodiscard]] std::vector<Processors> place_ranks(const Topology& topology, int32_t ranks, Bind bind);

/// How many threads each rank can run so that ranks with the same processors share them; at least 1.
[[nodiscard]] int32_t threads_of(const std::vector<Processors>& placed);

}  // namespace ddp::ddprun
