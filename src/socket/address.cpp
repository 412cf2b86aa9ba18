// SPDX-License-Identifier: Apache-2.0
#include "socket/address.hpp"

#include "control/interfaces.hpp"
#include "core/error.hpp"
#include "os/loopback.hpp"

namespace ddp::socket {

namespace net = bootstrap::net;

bool on_one_host(const bootstrap::Control& control) noexcept {
  for (int32_t rank = 1; rank < control.size(); ++rank)
    if (control.member(rank).boot_id != control.member(0).boot_id) return false;
  return true;
}

bool is_loopback(std::string_view address) noexcept { return address.substr(0, 4) == "127." || address == "::1"; }

std::string socket_address(const bootstrap::Control& control, const char* interface_name) {
  const bootstrap::Member& self = control.member(control.rank());
  const bool one_host = on_one_host(control);
  std::string address = self.address;
  if (interface_name != nullptr && *interface_name != '\0') {
    // All ranks must use one family: the one in which they reached rank 0, IPv4 if that is not known.
    const bool v6 = control.member(0).address.find(':') != std::string::npos;
    address = net::choose_interface(interface_name, net::interfaces_here(), v6 ? net::Family::kV6 : net::Family::kV4).host();
  } else if (address.empty() && one_host) {
    address = os::loopback();
  }
  if (address.empty())
    throw make_error(DDP_ERROR_IO,
                     "no network address of %s is known to the other hosts; set DDP_SOCKET_IFNAME to the network "
                     "interface that reaches them",
                     self.name().c_str());
  if (is_loopback(address) && !one_host)
    throw make_error(DDP_ERROR_IO,
                     "%s would listen on %s, which the other hosts cannot reach; set DDP_SOCKET_IFNAME to the network "
                     "interface that reaches them",
                     self.name().c_str(), address.c_str());
  return address;
}

}  // namespace ddp::socket
