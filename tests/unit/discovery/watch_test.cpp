// SPDX-License-Identifier: Apache-2.0
// A watch sees that the rank it looks at serves, and that it has ended.
#include "control/server.hpp"
#include "discovery/probe.hpp"
#include "support/check.hpp"

using namespace ddp::bootstrap;

constexpr auth::GroupId kGroup = {7};

bool comes_to(Watch& watch, bool serving) {
  const os::Deadline limit = os::Deadline::in_ms(20'000);
  while ((watch.look() == Watch::State::kServing) != serving)
    if (limit.passed()) return false;
  return true;
}

/// With a token the serving rank sends the group's key at once, which a watch does not read.
ddp_case(the_end_of_a_serving_rank_is_seen_behind_unread_bytes) {
  for (const auth::Token& token : {auth::Token("secret"), auth::Token()}) {
    int error = 0;
    net::Socket listening =
        net::listen_at(net::resolve("127.0.0.1", os::Deadline::in_ms(5'000)).front().with_port(0), error);
    const net::Endpoint where = net::local_end(listening);
    ServerConfig config;
    config.size = 2;
    config.group = kGroup;
    config.token = token;
    config.recovers = true;
    auto server = std::make_unique<Server>(std::move(listening), config);
    Watch watch({where, kGroup, token}, {1, 2});
    expect(comes_to(watch, true), "it serves");
    for (int look = 0; look < 100; ++look) expect(watch.look() == Watch::State::kServing, "it still serves");
    server.reset();
    expect(comes_to(watch, false), "it serves no more");
  }
}
