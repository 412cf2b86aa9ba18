// SPDX-License-Identifier: Apache-2.0
// The address at which processes of this host reach each other. Any thread. Tested by process/ipv6_netns_test.sh.
#pragma once

#include <string>

namespace ddp::os {

/// "127.0.0.1", or "::1" on a host that has no IPv4.
[[nodiscard]] std::string loopback();

}  // namespace ddp::os
