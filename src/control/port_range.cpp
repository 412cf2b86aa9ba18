// SPDX-License-Identifier: Apache-2.0
#include "control/port_range.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>

#include "core/error.hpp"

namespace ddp::bootstrap {
namespace {

constexpr int32_t kLastPort = 65'535;

void checked(const PortRange& ports, const std::string& text, const char* source) {
  if (ports.first < 1 || ports.last > kLastPort || ports.first > ports.last)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "%s is %s; a range of ports looks like 50000-50100, and 1 to 65535 are possible", source, text.c_str());
}

}  // namespace

std::string PortRange::text() const { return is_any() ? "any" : std::to_string(first) + "-" + std::to_string(last); }

PortRange read_port_range(const std::string& text, const char* source) {
  PortRange ports;
  const char* const end = text.data() + text.size();
  auto read = std::from_chars(text.data(), end, ports.first);
  ports.last = ports.first;
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, ports.last);
  if (read.ec != std::errc() || read.ptr != end) ports = {};
  checked(ports, "\"" + text + "\"", source);
  return ports;
}

void resolve_ports(ddp_group_options& options, const char* environment) {
  PortRange ports = port_range_of(options);
  if (options.first_port != 0 || options.last_port != 0)
    checked(ports, std::to_string(ports.first) + "-" + std::to_string(ports.last), "options->first_port to last_port");
  else if (environment != nullptr && *environment != '\0')
    ports = read_port_range(environment, "DDP_PORT_RANGE");
  options.first_port = ports.first;
  options.last_port = ports.last;
}

net::Socket listen_in_range(const net::Endpoint& where, const PortRange& ports, const char* who) {
  int error = 0;
  for (int32_t port = ports.first; port <= ports.last; ++port) {
    net::Socket socket = net::listen_at(where.with_port(port), error);
    if (socket) return socket;
    if (error != EADDRINUSE) break;
  }
  if (error == EADDRINUSE && !ports.is_any())
    throw make_error(DDP_ERROR_IO,
                     "%s cannot listen at %s: all ports of the range %s are in use; each rank of a host needs one while "
                     "it connects, and rank 0 another one (DDP_PORT_RANGE, or first_port and last_port of the group)",
                     who, where.host().c_str(), ports.text().c_str());
  throw make_error(status_of_errno(error, DDP_ERROR_IO), "%s cannot listen at %s: %s%s", who, where.host().c_str(),
                   std::strerror(error), advice_of_errno(error));
}

}  // namespace ddp::bootstrap
