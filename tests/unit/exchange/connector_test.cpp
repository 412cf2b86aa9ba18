// SPDX-License-Identifier: Apache-2.0
// Connections between members that are threads: each gets the right ones, strangers get none, and a wait that cannot end
// well ends with the names of missing ranks.
#include "socket/connector.hpp"

#include "core/attempt.hpp"
#include "support/check.hpp"
#include "support/no_gloo.hpp"

using namespace ddp::socket;

constexpr int32_t kLanes = 2;

std::unique_ptr<Connector> member(int32_t index, unsigned char group = 1, const char* address = "127.0.0.1",
                                  const Sealing& sealing = {}) {
  auth::Key key{};
  key.fill(group);
  return std::make_unique<Connector>(index, kLanes, address, bootstrap::PortRange{}, key, sealing);
}

struct Set {
  std::vector<std::unique_ptr<Connector>> members;
  std::vector<Invitation> invitations;
  explicit Set(int32_t size) {
    for (int32_t index = 0; index < size; ++index) add(member(index));
  }
  void add(std::unique_ptr<Connector> one) {
    invitations.push_back(one->invitation());
    members.push_back(std::move(one));
  }
  [[nodiscard]] std::vector<Connected> connect(int64_t limit_ms) {
    std::vector<Connected> outcomes(members.size());
    std::vector<std::thread> threads;
    for (size_t at = 0; at < members.size(); ++at)
      threads.emplace_back([&, at] { outcomes[at] = members[at]->connect(invitations, os::Deadline::in_ms(limit_ms)); });
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }
};

ddp_case(each_lane_leads_to_its_other_end) {
  for (const int32_t size : {1, 2, 5}) {
    Set set(size);
    for (const Connected& outcome : set.connect(10'000)) expect(outcome.result == LinkResult::kDone, "connected");
    std::vector<std::vector<std::vector<Connection>>> links(static_cast<size_t>(size));
    for (int32_t a = 0; a < size; ++a)
      for (int32_t b = 0; b < size; ++b)
        links[static_cast<size_t>(a)].push_back(set.members[static_cast<size_t>(a)]->take(b));
    for (int32_t a = 0; a < size; ++a)
      for (int32_t b = 0; b < size; ++b)
        for (int32_t lane = 0; a != b && lane < kLanes; ++lane) {
          const int said = 100 * a + 10 * b + lane;
          const net::Socket& from = links[static_cast<size_t>(a)][static_cast<size_t>(b)][static_cast<size_t>(lane)].socket;
          const net::Socket& to = links[static_cast<size_t>(b)][static_cast<size_t>(a)][static_cast<size_t>(lane)].socket;
          int heard = -1;
          expect(::write(from.get(), &said, sizeof said) == sizeof said &&
                     net::wait_for(to, POLLIN, os::Deadline::in_ms(1'000)) &&
                     ::read(to.get(), &heard, sizeof heard) == sizeof heard && heard == said,
                 "lane " + std::to_string(said));
        }
  }
}

ddp_case(sealed_links_lead_to_their_other_end_too) {
  if (no_gloo()) return;
  const Sealing sealing{&load_module(), DDP_LINKS_ENCRYPTED};
  constexpr int32_t kSize = 3;
  Set set(0);
  for (int32_t index = 0; index < kSize; ++index) set.add(member(index, 1, "127.0.0.1", sealing));
  for (const Connected& outcome : set.connect(10'000)) expect(outcome.result == LinkResult::kDone, "connected");
  for (int32_t a = 0; a < kSize; ++a)
    for (int32_t b = a + 1; b < kSize; ++b) {
      const std::vector<Connection> from = set.members[static_cast<size_t>(a)]->take(b),
                                    to = set.members[static_cast<size_t>(b)]->take(a);
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const int said = 100 * a + 10 * b + static_cast<int>(lane);
        int heard = -1;
        expect(from[lane].seal != nullptr && to[lane].seal != nullptr, "sealed");
        expect(from[lane].seal->write(&said, sizeof said, nullptr, 0) == sizeof said &&
                   net::wait_for(to[lane].socket, POLLIN, os::Deadline::in_ms(1'000)) &&
                   to[lane].seal->read(&heard, sizeof heard) == sizeof heard && heard == said,
               "lane " + std::to_string(said));
      }
    }
}

// One of them wants a seal, the other sends a welcome.
ddp_case(a_member_that_wants_plain_links_is_no_member_of_sealed_ones) {
  if (no_gloo()) return;
  Set set(0);
  set.add(member(0, 1, "127.0.0.1", Sealing{&load_module(), DDP_LINKS_ENCRYPTED}));
  set.add(member(1));
  for (const Connected& outcome : set.connect(300)) expect(outcome.result == LinkResult::kTimedOut, "not connected");
}

ddp_case(a_member_of_another_group_is_no_member) {
  Set set(1);
  set.add(member(1, 2));
  for (const Connected& outcome : set.connect(300)) expect(outcome.result == LinkResult::kTimedOut, "not admitted");
  expect(set.members[0]->turned_away() >= 2, "turned away");
}

// As an attacker with a recording would: the same bytes to the same listener.
ddp_case(a_hello_that_is_repeated_is_a_strangers) {
  auth::Key group{};
  group.fill(1);
  LinkListener listener("127.0.0.1", bootstrap::PortRange{}, group);
  const std::string hello = write_hello(link_token(group, listener.invitation().secret), {1, 0}, auth::random_nonce());
  const net::Endpoint where = net::resolve("127.0.0.1", os::Deadline::never()).front().with_port(listener.invitation().port);
  int32_t admitted = 0;
  const auto send_hello = [&] {
    int error = 0;
    net::Socket socket = net::connect_to(where, os::Deadline::in_ms(5'000), error);
    expect(::write(socket.get(), hello.data(), hello.size()) == static_cast<ssize_t>(hello.size()), "sent");
    for (const int64_t before = admitted + listener.turned_away(); admitted + listener.turned_away() == before;) {
      std::vector<pollfd> polled;
      listener.watch(polled);
      expect(::poll(polled.data(), polled.size(), 5'000) > 0, "something comes");
      listener.serve(polled.data(), [&](LinkName link, Connection) { return ++admitted, link.from == 1 && link.lane == 0; });
    }
  };
  send_hello();
  expect(admitted == 1 && listener.turned_away() == 0, "the first time");
  send_hello();
  expect(admitted == 1 && listener.turned_away() == 1, "the second time");
}

ddp_case(ipv6_works_where_there_is_some) {
  Set set(0);
  if (try_to([&] { set.add(member(0, 1, "::1")); })) {
    std::printf("no IPv6 here\n");
    return;
  }
  set.add(member(1, 1, "::1"));
  expect_contains(set.members[0]->place(), "[::1]:");
  for (const Connected& outcome : set.connect(10'000)) expect(outcome.result == LinkResult::kDone, "connected");
}

ddp_case(who_is_missing_is_named) {
  Set set(3);
  const Connected outcome = set.members[1]->connect(set.invitations, os::Deadline::in_ms(200));
  expect(outcome.result == LinkResult::kTimedOut && outcome.peer == 0, "the one that we were to reach");
  expect_contains(outcome.trouble, "127.0.0.1:" + std::to_string(set.invitations[0].port));
  const Connected behind = set.members[0]->connect(set.invitations, os::Deadline::in_ms(200));
  expect(behind.result == LinkResult::kTimedOut && behind.peer == 2 && behind.trouble.empty(),
         "the first of those that were to reach us and have not proved who they are");
}

ddp_case(a_port_where_nobody_listens_is_said_long_before_time_is_up) {
  Set set(2);
  set.members[0].reset();
  const int64_t begin = os::now_ns();
  const Connected outcome = set.members[1]->connect(set.invitations, os::Deadline::in_ms(60'000));
  expect(outcome.result == LinkResult::kFailed && outcome.peer == 0, "refused");
  expect_contains(outcome.trouble, "refused");
  expect(os::now_ns() - begin < 30'000'000'000, "in time");
}

ddp_case(abort_ends_it_from_another_thread) {
  Set set(2);
  std::thread other([&] { set.members[1]->abort(); });
  const Connected outcome = set.members[1]->connect(set.invitations, os::Deadline::in_ms(60'000));
  other.join();
  expect(outcome.result == LinkResult::kAborted, "aborted");
}
