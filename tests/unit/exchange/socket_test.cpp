// SPDX-License-Identifier: Apache-2.0
// The endpoint as an object, over the in-process table: what a wait can end with, and where listening addresses and modules
// come from.

#include "socket/address.hpp"
#include "socket/endpoint.hpp"
#include "socket/module.hpp"
#include "support/check.hpp"
#include "support/local_endpoint.hpp"
#include "support/thread_control.hpp"

ddp_case(messages_of_one_slot_arrive_in_order) {
  socket::Endpoint a(local_endpoint(), 0, 2, "order", true), b(local_endpoint(), 1, 2, "order", true);
  expect(a.attach(1, {}, {}) == socket::LinkResult::kDone && b.attach(0, {}, {}) == socket::LinkResult::kDone, "connected");
  int first = 1, second = 2, got[2] = {0, 0};
  socket::Endpoint::Ticket sends[2], receives[2];
  expect(a.send(1, 7, &first, sizeof first, sends[0]) == socket::LinkResult::kDone, "posted");
  expect(a.send(1, 7, &second, sizeof second, sends[1]) == socket::LinkResult::kDone, "posted");
  for (int i = 0; i < 2; ++i)
    expect(b.receive(0, 7, &got[i], sizeof got[i], receives[i]) == socket::LinkResult::kDone, "posted");
  for (int i = 0; i < 2; ++i)
    expect(a.wait(sends[i], 1000) == socket::LinkResult::kDone && b.wait(receives[i], 1000) == socket::LinkResult::kDone,
           "arrived");
  expect(got[0] == 1 && got[1] == 2, "in order");
}

ddp_case(a_wait_ends_when_its_time_is_up) {
  socket::Endpoint a(local_endpoint(), 0, 2, "time", true);
  int value = 0;
  socket::Endpoint::Ticket ticket;
  expect(a.receive(1, 1, &value, sizeof value, ticket) == socket::LinkResult::kDone, "posted");
  expect(a.wait(ticket, 20) == socket::LinkResult::kTimedOut, "timed out");
}

ddp_case(abort_ends_a_wait_of_another_thread) {
  socket::Endpoint a(local_endpoint(), 0, 2, "abort", true);
  int value = 0;
  socket::Endpoint::Ticket ticket;
  expect(a.receive(1, 1, &value, sizeof value, ticket) == socket::LinkResult::kDone, "posted");
  std::thread other([&] { a.abort(); });
  const socket::LinkResult result = a.wait(ticket, 10'000);
  other.join();
  expect(result == socket::LinkResult::kAborted, "aborted");
  expect(a.receive(1, 1, &value, sizeof value, ticket) == socket::LinkResult::kAborted, "and everything after it");
}

ddp_case(a_table_of_another_version_is_refused) {
  ddp_socket_table table = local_endpoint();
  table.version = DDP_SOCKET_VERSION + 1;
  expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { socket::Endpoint(table, 0, 2, "version", true); }, {"the same release"});
}

ddp_case(a_missing_module_says_where_it_was_searched) {
  expect_error(DDP_ERROR_NOT_SUPPORTED, [] { static_cast<void>(socket::open_socket_module({"/nowhere/libddp_gloo.so"})); },
               {"/nowhere/libddp_gloo.so", "DDP_MODULE_PATH"});
}

ddp_case(a_file_that_is_no_module_is_refused_with_the_loader_s_words) {
  expect_contains(
      expect_error(DDP_ERROR_NOT_SUPPORTED, [] { static_cast<void>(socket::open_socket_module({"/etc/passwd"})); }),
      "/etc/passwd");
}

class TwoHosts : public ThreadControl {
 public:
  TwoHosts(ThreadHub& hub, std::string address, bool one_host) : ThreadControl(hub, 1) {
    for (int32_t rank = 0; rank < 2; ++rank)
      members_[rank] = bootstrap::Member{rank, "h", one_host ? "boot" : "boot" + std::to_string(rank), 1, address};
  }
  [[nodiscard]] const bootstrap::Member& member(int32_t rank) const noexcept override { return members_[rank]; }

 private:
  bootstrap::Member members_[2];
};

ddp_case(the_address_is_the_one_that_reaches_rank_0) {
  ThreadHub hub(2);
  expect_equal(socket::socket_address(TwoHosts(hub, "10.1.2.3", false), nullptr), std::string("10.1.2.3"), "between hosts");
  expect_equal(socket::socket_address(TwoHosts(hub, "127.0.0.1", true), nullptr), std::string("127.0.0.1"), "on one host");
  expect_equal(socket::socket_address(TwoHosts(hub, "", true), ""), std::string("127.0.0.1"), "no network at all");
}

ddp_case(loopback_between_hosts_is_refused) {
  ThreadHub hub(2);
  for (const char* address : {"127.0.1.1", "::1", ""})
    expect_error(DDP_ERROR_IO, [&] { static_cast<void>(socket::socket_address(TwoHosts(hub, address, false), nullptr)); },
                 {"DDP_SOCKET_IFNAME"});
}

ddp_case(an_interface_can_be_named) {
  ThreadHub hub(2);
  expect_equal(socket::socket_address(TwoHosts(hub, "10.1.2.3", true), "lo"), std::string("127.0.0.1"), "lo");
  expect_contains(
      expect_error(DDP_ERROR_INVALID_ARGUMENT,
                   [&] { static_cast<void>(socket::socket_address(TwoHosts(hub, "10.1.2.3", false), "no_such_if")); }),
      "no_such_if");
}
