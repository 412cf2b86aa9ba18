// SPDX-License-Identifier: Apache-2.0
// Where rank 0 listens when a host and a port are given: there, or on one of the 16 ports after it if the port is taken.
//
// The others walk the same ports and know the right one by its banner, which holds the asked port: jobs with neighbouring
// ports walk over the same ports and never meet. It must prove that it knows the token, too: a server that only shows the
// banner is passed over like another group. Rank 0 may always walk past other groups of libddp, but past other programs only
// where the port was a launcher's choice and not the user's. Tested by process/rendezvous_test.cpp and
// process/rendezvous_neighbours_test.cpp.
#pragma once

#include <vector>

#include "control/net.hpp"
#include "discovery/probe.hpp"
#include "discovery/rendezvous.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

/// The ports of the walk, in order.
[[nodiscard]] std::vector<int32_t> ports_of(const Meeting& meeting, int32_t first);

struct Listening {
  net::Socket socket;
  net::Endpoint where;
};

/// Walks past any program, without checking it: for a place that is found anywhere in the walk. Throws IO.
[[nodiscard]] Listening listen_past_all(const Meeting& meeting, const std::vector<net::Endpoint>& addresses,
                                        const std::vector<int32_t>& ports);

/// Throws IO naming the port or the address, INVALID_ARGUMENT if another rank 0 of this group waits there.
[[nodiscard]] Listening listen_in_walk(const Meeting& meeting, const std::vector<net::Endpoint>& addresses,
                                       const std::vector<int32_t>& ports, const Address& target, os::Deadline deadline);

}  // namespace ddp::bootstrap
