#include "collective/socket/address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>

#include "core/error.hpp"

namespace ddp::socket {
namespace {

bool on_one_host(const bootstrap::Control& control) {
  for (int32_t rank = 1; rank < control.size(); ++rank)
    if (control.member(rank).boot_id != control.member(0).boot_id) return false;
  return true;
}

// "" for an address of another kind, or one that needs a scope to be used.
std::string numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&v6)) inet_ntop(AF_INET6, &v6, text, sizeof text);
  }
  return text;
}

// All ranks must use one family: the one in which they reached rank 0, IPv4 if that is not known.
std::string address_of_interface(const char* name, bool want_v6) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    throw make_error(status_of_errno(errno, DDP_ERROR_IO), "cannot list the network interfaces: %s", std::strerror(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  bool exists = false;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (std::strcmp(entry->ifa_name, name) != 0) continue;
    exists = true;
    const std::string text = numeric(entry->ifa_addr);
    if (!text.empty() && (text.find(':') != std::string::npos) == want_v6) return text;
  }
  throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                   exists ? "the network interface \"%s\" in DDP_SOCKET_IFNAME has no %s address"
                          : "DDP_SOCKET_IFNAME names \"%s\", which is no network interface of this "
                            "host (an %s address is needed)",
                   name, want_v6 ? "IPv6" : "IPv4");
}

}  // namespace

bool is_loopback(std::string_view address) noexcept { return address.substr(0, 4) == "127." || address == "::1"; }

std::string socket_address(const bootstrap::Control& control, const char* interface_name) {
  const bootstrap::Member& self = control.member(control.rank());
  const bool one_host = on_one_host(control);
  std::string address = self.address;
  if (interface_name != nullptr && *interface_name != '\0') {
    address = address_of_interface(interface_name, control.member(0).address.find(':') != std::string::npos);
  } else if (address.empty() && one_host) {
    address = "127.0.0.1";
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
