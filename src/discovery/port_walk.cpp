// SPDX-License-Identifier: Apache-2.0
#include "discovery/port_walk.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "control/limits.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap {
namespace {

constexpr int kClosingTries = 20;  // a port that is taken but does not answer may be about to be given up
constexpr auto kClosingPause = std::chrono::milliseconds(25);

// Listen here; an empty socket if the walk should continue.
net::Socket try_port(const Meeting& meeting, const Address& target, const os::Deadline& deadline, int& error) {
  for (int i = 0; i < kClosingTries; ++i) {
    net::Socket socket = net::listen_at(target.where, error);
    if (error != EADDRINUSE) return socket;
    switch (probe(target, Caller{meeting.rank, meeting.size}, deadline).answer) {
      case Probe::Answer::kAdmitted:  // and goes again without a word
        throw make_error(
            DDP_ERROR_INVALID_ARGUMENT,
            "rank 0 is taken: another rank 0 of this group waits at %s; give every rank its own number, or give "
            "the groups names (#name)",
            target.where.text().c_str());
      case Probe::Answer::kOtherGroup:
      case Probe::Answer::kUnproved:
      case Probe::Answer::kRefused: return socket;
      case Probe::Answer::kSilent:
      case Probe::Answer::kForeign:
        if (meeting.kind == Meeting::Kind::kEnvironment) return socket;
        throw make_error(DDP_ERROR_IO, "port %d of %s is in use by another program: choose another port",
                         target.where.port(), target.where.host().c_str());
      case Probe::Answer::kNobody: std::this_thread::sleep_for(kClosingPause);
    }
  }
  if (meeting.kind == Meeting::Kind::kEnvironment) return net::Socket();
  throw make_error(DDP_ERROR_IO, "port %d of %s is in use: choose another port", target.where.port(),
                   target.where.host().c_str());
}

Error no_port(const Meeting& meeting, const std::vector<net::Endpoint>& addresses, const std::vector<int32_t>& ports,
              int error) {
  if (error == EADDRINUSE)
    return make_error(DDP_ERROR_IO, "all ports from %d to %d of %s are in use: choose another port", ports.front(),
                      ports.back(), addresses.front().host().c_str());
  if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT)
    return make_error(status_of_errno(error, DDP_ERROR_IO), "rank 0 cannot listen at %s: %s%s",
                      addresses.front().host().c_str(), std::strerror(error), advice_of_errno(error));
  return make_error(DDP_ERROR_IO,
                    "rank 0 cannot listen at %s, which is not an address of this host: start rank 0 on the host "
                    "that %s names",
                    addresses.front().host().c_str(), meeting.place.c_str());
}

}  // namespace

std::vector<int32_t> ports_of(const Meeting& meeting, int32_t first) {
  std::vector<int32_t> ports;
  for (int32_t i = meeting.port_may_be_taken ? 1 : 0; i < limits::kPorts && first + i <= 65'535; ++i)
    ports.push_back(first + i);
  return ports;
}

Listening listen_past_all(const Meeting& meeting, const std::vector<net::Endpoint>& addresses,
                          const std::vector<int32_t>& ports) {
  int error = 0;
  for (const int32_t port : ports) {
    for (const net::Endpoint& address : addresses) {
      const net::Endpoint here = address.with_port(port);
      if (net::Socket socket = net::listen_at(here, error)) return {std::move(socket), here};
      if (error == EADDRINUSE) break;
    }
    if (error != EADDRINUSE) break;
  }
  throw no_port(meeting, addresses, ports, error);
}

Listening listen_in_walk(const Meeting& meeting, const std::vector<net::Endpoint>& addresses,
                         const std::vector<int32_t>& ports, const Address& target, os::Deadline deadline) {
  int error = 0;
  for (const int32_t port : ports) {
    for (const net::Endpoint& address : addresses) {
      Address here = target;
      here.where = address.with_port(port);
      net::Socket socket = try_port(meeting, here, deadline, error);
      if (socket) return {std::move(socket), here.where};
      if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) continue;  // not an address of this host
      if (error == EADDRINUSE) break;
      throw make_error(status_of_errno(error, DDP_ERROR_IO), "rank 0 cannot listen at %s: %s%s", here.where.text().c_str(),
                       std::strerror(error), advice_of_errno(error));
    }
    if (error != EADDRINUSE) break;
  }
  throw no_port(meeting, addresses, ports, error);
}

}  // namespace ddp::bootstrap
