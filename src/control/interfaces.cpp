// SPDX-License-Identifier: Apache-2.0
#include "control/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "core/attempt.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap::net {
namespace {

std::vector<std::string_view> entries_of(std::string_view list) {
  std::vector<std::string_view> entries;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    if (end > 0) entries.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return entries;
}

bool begins_with(const std::string& name, std::string_view beginning) {
  return name.compare(0, beginning.size(), beginning) == 0;
}

bool is_v6(const Interface& interface) { return interface.address.address.ss_family == AF_INET6; }

bool is_usable(const Interface& interface, Family family) {
  return family == Family::kAny || is_v6(interface) == (family == Family::kV6);
}

// The first one that fits; of an interface's addresses the IPv4 one.
template <class Fits>
std::optional<Endpoint> first(const std::vector<Interface>& here, Family family, const Fits& fits) {
  const Interface* found = nullptr;
  for (const Interface& one : here) {
    if (!is_usable(one, family) || !fits(one)) continue;
    if (found == nullptr || (one.name == found->name && is_v6(*found) && !is_v6(one))) found = &one;
  }
  return found != nullptr ? std::optional(found->address) : std::nullopt;
}

std::optional<Endpoint> find(std::string_view wanted, const std::vector<Interface>& here, Family family) {
  const bool all_but = wanted.substr(0, 1) == "^";
  const bool in_full = wanted.substr(0, 1) == "=";
  const std::vector<std::string_view> entries = entries_of(all_but || in_full ? wanted.substr(1) : wanted);
  if (all_but)
    return first(here, family, [&](const Interface& one) {
      return !one.address.is_loopback() && std::none_of(entries.begin(), entries.end(), [&](std::string_view entry) {
        return begins_with(one.name, entry);
      });
    });
  for (const std::string_view entry : entries) {
    auto found = first(here, family, [&](const Interface& one) { return one.name == entry; });
    if (!found && !in_full) found = first(here, family, [&](const Interface& one) { return begins_with(one.name, entry); });
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace

// Connecting a datagram socket sends nothing, but chooses the way.
std::string way_to(const Endpoint& target) {
  const Socket socket(::socket(target.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&target.address), target.length) != 0) return "";
  const std::string host = local_end(socket).host();
  std::string text;
  static_cast<void>(try_to([&] {
    for (const Interface& one : interfaces_here())
      if (text.empty() && one.address.host() == host) text = " from " + one.name + " (" + host + ")";
  }));
  return text;
}

std::vector<Interface> interfaces_here() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    throw make_error(status_of_errno(errno, DDP_ERROR_IO), "the network interfaces cannot be read: %s",
                     std::strerror(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    const sa_family_t family = at->ifa_addr == nullptr ? AF_UNSPEC : at->ifa_addr->sa_family;
    if ((family != AF_INET && family != AF_INET6) || (at->ifa_flags & IFF_UP) == 0) continue;
    Interface one{at->ifa_name, {}};
    one.address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&one.address.address, at->ifa_addr, one.address.length);
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr))
      continue;
    found.push_back(std::move(one));
  }
  return found;
}

bool is_here(const Endpoint& address) {
  const std::vector<Interface> here = interfaces_here();
  return std::any_of(here.begin(), here.end(), [&](const auto& one) { return one.address.host() == address.host(); });
}

Endpoint choose_interface(std::string_view wanted, const std::vector<Interface>& here, Family family) {
  if (const std::optional<Endpoint> found = find(wanted, here, family)) return *found;
  std::string all;
  for (const Interface& one : here) all += (all.empty() ? "" : ", ") + one.name + " (" + one.address.host() + ")";
  throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                   "DDP_SOCKET_IFNAME is \"%s\", and no network interface of this host fits%s; it has %s",
                   std::string(wanted).c_str(),
                   family == Family::kAny  ? ""
                   : family == Family::kV4 ? " and has an IPv4 address, which is needed"
                                           : " and has an IPv6 address, which is needed",
                   all.empty() ? "none" : all.c_str());
}

}  // namespace ddp::bootstrap::net
