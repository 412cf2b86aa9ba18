// SPDX-License-Identifier: Apache-2.0
// The most usual way to fail between hosts: rank 0's host maps its own name to a loopback address, where no other rank can
// find it.
#include <netdb.h>

#include "control/net.hpp"
#include "support/check.hpp"
#include "support/meeting.hpp"
#include "support/ranks.hpp"

std::string own_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool maps_to_loopback(const std::string& name) {
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, nullptr, &found) != 0) return false;
  bool all = true;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    ddp::bootstrap::net::Endpoint endpoint;
    endpoint.length = at->ai_addrlen;
    __builtin_memcpy(&endpoint.address, at->ai_addr, at->ai_addrlen);
    all = all && endpoint.is_loopback();
  }
  ::freeaddrinfo(found);
  return all;
}

std::string address_of_rank_0(const std::string& host) {
  const std::string place = "tcp://" + host + ":" + std::to_string(ddp::test::free_port());
  std::string address;
  run_ranks(2, [&](int rank) {
    const auto control = meet_at(place, rank, 2);
    static_cast<void>(control->gather("hello", "", ddp::os::Deadline::in_ms(20'000)));
    expect(control->member(0).address == control->member(1).address, "both ranks are on one host");
    if (rank == 0) address = control->member(0).address;
    static_cast<void>(control->gather("goodbye", "", ddp::os::Deadline::in_ms(20'000)));
  });
  return address;
}

ddp_case(with_a_token_rank_0_listens_where_other_hosts_find_it) {
  const std::string reachable = ddp::bootstrap::net::own_address(nullptr).host();
  if (own_name() == "localhost" || !maps_to_loopback(own_name()) ||
      ddp::bootstrap::net::own_address(nullptr).is_loopback()) {
    print_message("not tried: this host does not map its name to a loopback address, or has no other\n");
    return;
  }
  ::setenv("DDP_TOKEN", "a token for this test", 1);
  expect_equal(address_of_rank_0(own_name()), reachable, "address");
  ::unsetenv("DDP_TOKEN");
  expect_equal(address_of_rank_0(own_name()), std::string("127.0.0.1"), "address without a token");
}

ddp_case(localhost_stays_localhost) {
  ::setenv("DDP_TOKEN", "a token for this test", 1);
  expect_equal(address_of_rank_0("localhost"), std::string("127.0.0.1"), "address");
  expect_equal(address_of_rank_0("127.0.0.1"), std::string("127.0.0.1"), "address");
  ::unsetenv("DDP_TOKEN");
}
