// SPDX-License-Identifier: Apache-2.0
// Which network interface DDP_SOCKET_IFNAME means on this host. The syntax is NCCL's, and the order of a list counts:
//
//   ib0,eth    the first entry that fits: an interface of this name, else the first one whose name begins so
//   =ib0,eth0  names in full only
//   ^docker,br the first interface, other than the loopback, whose name begins with none of these
//
// Interfaces without an address of the wanted family are passed over, so one value serves hosts whose interfaces differ.
// Any thread.
// Tested by unit/control/interfaces_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "control/net.hpp"

namespace ddp::bootstrap::net {

struct Interface {
  std::string name;
  Endpoint address;
};

/// Those of this host, in the kernel's order, with addresses that need no scope. Throws IO, OUT_OF_MEMORY.
[[nodiscard]] std::vector<Interface> interfaces_here();

/// Is this an address of this host, whatever the port?
[[nodiscard]] bool is_here(const Endpoint& address);

/// " from eth0 (10.0.0.1)": the interface by which this host would send there; "" if none is known.
[[nodiscard]] std::string way_to(const Endpoint& target);

enum class Family { kAny, kV4, kV6 };  // kAny: IPv4 where an interface has both

/// Port 0. Throws INVALID_ARGUMENT with the interfaces of this host.
[[nodiscard]] Endpoint choose_interface(std::string_view wanted, const std::vector<Interface>& here, Family family);

}  // namespace ddp::bootstrap::net
