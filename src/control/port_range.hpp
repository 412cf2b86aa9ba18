// SPDX-License-Identifier: Apache-2.0
// The ports that a group may listen on, for firewalls: rank 0's control port unless the rendezvous names one, and the data
// links of every rank. Any thread.
// Tested by unit/control/port_range_test.cpp and process/port_range_test.cpp.
#pragma once

#include <cstdint>
#include <string>

#include "control/net.hpp"
#include "ddp/group.h"

namespace ddp::bootstrap {

/// first to last, both included; 0 to 0: wherever the system likes.
struct PortRange {
  int32_t first = 0;
  int32_t last = 0;

  [[nodiscard]] bool is_any() const noexcept { return first == 0; }
  /// "50000-50100", "any"
  [[nodiscard]] std::string text() const;
};

/// "50000-50100" or "50000"; `source` is named in the INVALID_ARGUMENT that other text gets.
[[nodiscard]] PortRange read_port_range(const std::string& text, const char* source);

/// Fill the options from the environment's DDP_PORT_RANGE (NULL: not set) where they leave it open. Throws INVALID_ARGUMENT.
void resolve_ports(ddp_group_options& options, const char* environment);
[[nodiscard]] inline PortRange port_range_of(const ddp_group_options& options) noexcept {
  return {options.first_port, options.last_port};
}

/// Listen at this address on the first port of the range that is free. Throws IO or OUT_OF_MEMORY; `who` begins the sentence
/// ("rank 0", "this rank").
[[nodiscard]] net::Socket listen_in_range(const net::Endpoint& where, const PortRange& ports, const char* who);

}  // namespace ddp::bootstrap
