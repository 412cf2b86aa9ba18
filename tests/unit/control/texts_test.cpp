// SPDX-License-Identifier: Apache-2.0
// What errors say about hosts and networks.
#include "control/texts.hpp"

#include "control/interfaces.hpp"
#include "support/check.hpp"

using namespace ddp::bootstrap;

ddp_case(missing_ranks_have_a_host) {
  expect_equal(texts::expected_on({1, 2, 3}, "a:2,b:2"), std::string("rank 1 on host a, ranks 2 and 3 on host b"),
               "two hosts");
  expect_equal(texts::expected_on({4}, "fd77::1:4,fd77::2:1"), std::string("rank 4 on host fd77::2"), "IPv6");
  expect_equal(texts::expected_on({2}, "--node-rank 0:2,--node-rank 1:2"), std::string("rank 2 with --node-rank 1"),
               "by hand");
  expect_contains(texts::expected_on({0, 1, 2, 3, 4, 5, 6, 7, 8}, "a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1"), "host h and more");
  for (const char* wrong : {"", "a", "a:", "a:x", "a:0", "a:-1", "a:2", ",", "a:2,,b:2", "a:99999999999"})
    expect_equal(texts::expected_on({3}, wrong), std::string(), wrong);
}

ddp_case(who_never_came_is_named_with_its_host) {
  expect_contains(
      texts::never_came({{2, 3}, {}}, 4, 5'000, "10.0.0.1:29500", "a:2,b:2").text(),
      "ranks 2 and 3 of 4 did not come within 5 s (expected: ranks 2 and 3 on host b); rank 0 listened at 10.0.0.1");
  expect_contains(texts::never_came({{1, 2}, {}, {2}}, 4, 5'000, "", "").text(),
                  "; rank 0 refused a process that came as rank 2 with another token: make a token once");
  expect_contains(texts::never_came({{2}, {}}, 4, 5'000, "", "").text(), "rank 2 of 4 did not come within 5 s");
}

ddp_case(a_firewall_is_blamed_only_where_packets_vanish) {
  for (const int error : {0, ETIMEDOUT})
    expect_contains(texts::unreachable_advice(error), "firewall between the hosts that drops");
  expect_contains(texts::unreachable_advice(ECONNREFUSED), "the host answers, but nothing listens on that port");
  expect_contains(texts::unreachable_advice(EHOSTUNREACH), "no way leads there");
  expect_contains(texts::unreachable_advice(EPROTO), "DDP_PORT_RANGE");
}

ddp_case(the_interface_is_named) {
  const net::Endpoint here = net::resolve("127.0.0.1", ddp::os::Deadline::never()).front().with_port(9);
  expect_equal(net::way_to(here), std::string(" from lo (127.0.0.1)"), "loopback");
}
