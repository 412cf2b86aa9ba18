// SPDX-License-Identifier: Apache-2.0
// The numeric address at which this rank's links listen. Never a host name: Debian maps the own name to a loopback address,
// so every other host would connect to itself. Tested by unit/exchange/socket_test.cpp.
#pragma once

#include <string>
#include <string_view>

#include "control/control.hpp"

namespace ddp::socket {

/// The address of `interface_name` if that is not NULL or empty (environment DDP_SOCKET_IFNAME), else the one by which this
/// rank reaches rank 0. Throws INVALID_ARGUMENT for an interface without an address, IO when the others could not reach what
/// was found.
[[nodiscard]] std::string socket_address(const bootstrap::Control& control, const char* interface_name);

[[nodiscard]] bool is_loopback(std::string_view address) noexcept;

/// Are all ranks on one host?
[[nodiscard]] bool on_one_host(const bootstrap::Control& control) noexcept;

}  // namespace ddp::socket
