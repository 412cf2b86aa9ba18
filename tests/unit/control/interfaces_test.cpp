// SPDX-License-Identifier: Apache-2.0
// Which interface a value of DDP_SOCKET_IFNAME means, on hosts made up here.
#include "control/interfaces.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "support/check.hpp"

namespace net = bootstrap::net;

net::Interface interface(const char* name, const char* address) {
  net::Interface one{name, {}};
  auto& v4 = reinterpret_cast<sockaddr_in&>(one.address.address);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(one.address.address);
  if (inet_pton(AF_INET, address, &v4.sin_addr) == 1) {
    one.address.address.ss_family = AF_INET;
    one.address.length = sizeof v4;
  } else {
    expect(inet_pton(AF_INET6, address, &v6.sin6_addr) == 1, address);
    one.address.address.ss_family = AF_INET6;
    one.address.length = sizeof v6;
  }
  return one;
}

const std::vector<net::Interface>& host() {
  static const std::vector<net::Interface> here{interface("lo", "127.0.0.1"),     interface("docker0", "172.17.0.1"),
                                                interface("eth10", "10.0.10.1"),  interface("eth1", "fd00::1"),
                                                interface("eth1", "10.0.1.1"),    interface("ib0", "fd00::b"),
                                                interface("br-12", "172.18.0.1"), interface("lo", "::1")};
  return here;
}

std::string chosen(const char* wanted, net::Family family = net::Family::kAny) {
  return net::choose_interface(wanted, host(), family).host();
}

ddp_case(a_name_in_full_comes_before_one_that_only_begins_so) {
  expect_equal(chosen("eth1"), std::string("10.0.1.1"), "eth1, and not eth10, which the kernel names first");
  expect_equal(chosen("eth"), std::string("10.0.10.1"), "the first that begins so");
  expect_equal(chosen("=eth1"), std::string("10.0.1.1"), "in full");
  expect_equal(chosen("lo"), std::string("127.0.0.1"), "IPv4 before IPv6");
}

ddp_case(the_first_of_a_list_that_is_there_counts) {
  expect_equal(chosen("bond0,ib0,eth1"), std::string("fd00::b"), "the second");
  expect_equal(chosen("ib0,eth1", net::Family::kV4), std::string("10.0.1.1"), "the first with an address of the family");
  expect_equal(chosen("eth1", net::Family::kV6), std::string("fd00::1"), "the other family");
  expect_equal(chosen("=eth,docker0"), std::string("172.17.0.1"), "no beginnings after =");
  expect_equal(chosen(",,ib0"), std::string("fd00::b"), "empty entries are nothing");
}

ddp_case(names_can_be_excluded) {
  expect_equal(chosen("^docker,br-"), std::string("10.0.10.1"), "neither loopback nor those");
  expect_equal(chosen("^docker,eth", net::Family::kV6), std::string("fd00::b"), "of a family");
}

ddp_case(what_fits_nothing_is_said_with_what_is_there) {
  for (const char* wanted : {"bond0", "=eth", "^docker,eth,ib,br", ",", "="}) {
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { (void)chosen(wanted); },
                 {std::string("DDP_SOCKET_IFNAME is \"") + wanted + "\"", "eth1 (10.0.1.1)"});
  }
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { (void)chosen("ib0", net::Family::kV4); }, {"IPv4"});
}

ddp_case(this_host_has_a_loopback) {
  const std::vector<net::Interface> here = net::interfaces_here();
  expect_equal(net::choose_interface("lo", here, net::Family::kV4).host(), std::string("127.0.0.1"), "lo");
}
