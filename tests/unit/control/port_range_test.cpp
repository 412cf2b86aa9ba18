// SPDX-License-Identifier: Apache-2.0
// The range of ports: how it is written, who wins, and that nothing listens outside of it.
#include "control/port_range.hpp"

#include "os/clock.hpp"
#include "support/check.hpp"

namespace net = bootstrap::net;

net::Endpoint loopback() { return net::resolve("127.0.0.1", os::Deadline::in_ms(1'000)).front(); }

// Two ports side by side that are free now.
int32_t free_pair() {
  for (int i = 0; i < 100; ++i) {
    int error = 0;
    const net::Socket first = net::listen_at(loopback(), error);
    const int32_t port = net::local_end(first).port();
    if (port < 65'535 && net::listen_at(loopback().with_port(port + 1), error)) return port;
  }
  throw std::runtime_error("no two free ports side by side");
}

ddp_case(ranges_are_read_whole_or_not_at_all) {
  const bootstrap::PortRange some = bootstrap::read_port_range("50000-50100", "here");
  expect(some.first == 50'000 && some.last == 50'100 && some.text() == "50000-50100", "two numbers");
  const bootstrap::PortRange one = bootstrap::read_port_range("1", "here");
  expect(one.first == 1 && one.last == 1, "one number");
  for (const char* text :
       {"", "-", "0", "5-", "-5", "6-5", "1-65536", "0-7", "5 -6", "5-6 ", "5-6-7", "x", "99999999999999"})
    expect_contains(
        expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { (void)bootstrap::read_port_range(text, "DDP_PORT_RANGE"); }),
        "DDP_PORT_RANGE is \"");
}

ddp_case(options_come_before_the_environment) {
  ddp_group_options options{};
  bootstrap::resolve_ports(options, nullptr);
  expect(bootstrap::port_range_of(options).is_any(), "nothing is asked for");
  bootstrap::resolve_ports(options, "7000-7010");
  expect(options.first_port == 7'000 && options.last_port == 7'010, "from the environment");
  bootstrap::resolve_ports(options, "1-2");
  expect(options.first_port == 7'000, "asked for already");
  for (const auto& [first, last] :
       {std::pair(5, 4), std::pair(0, 4), std::pair(4, 0), std::pair(-1, 4), std::pair(4, 65'536)}) {
    options.first_port = first;
    options.last_port = last;
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { bootstrap::resolve_ports(options, nullptr); }, {"first_port"});
  }
}

ddp_case(the_first_free_port_is_taken_and_none_beside_the_range) {
  const int32_t port = free_pair();
  const bootstrap::PortRange two{port, port + 1};
  const net::Socket a = bootstrap::listen_in_range(loopback(), two, "this rank");
  const net::Socket b = bootstrap::listen_in_range(loopback(), two, "this rank");
  expect(net::local_end(a).port() == port && net::local_end(b).port() == port + 1, "one after the other");
  const std::string text =
      expect_error(DDP_ERROR_IO, [&] { (void)bootstrap::listen_in_range(loopback(), two, "this rank"); });
  expect_contains(text, two.text());
  expect_contains(text, "DDP_PORT_RANGE");
}
