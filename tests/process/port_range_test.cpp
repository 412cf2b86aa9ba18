// SPDX-License-Identifier: Apache-2.0
// A group with a range of ports listens on no other port: neither rank 0, where the rendezvous names no port, nor
// the data links. One rank comes late, so that the others are seen listening.

#include <arpa/inet.h>

#include "bootstrap/failure.hpp"
#include "control/net.hpp"
#include "socket/transport.hpp"
#include "support/check.hpp"
#include "support/fork_control.hpp"
#include "support/group_procs.hpp"
#include "support/meeting.hpp"
#include "support/no_gloo.hpp"
#include "support/stranger.hpp"
#include "support/values.hpp"

constexpr int kRanks = 3;
constexpr int kLate = kRanks - 1;
constexpr int kPorts = 16;

// Waits until this number of ports is open, and checks that none is outside of the range.
void expect_ports(const Procs& procs, size_t count, int first) {
  std::vector<pid_t> all;
  for (int rank = 0; rank < kRanks; ++rank) all.push_back(procs.pid(rank));
  std::vector<int> ports;
  for (int i = 0; i < 1'000 && ports.size() < count; ++i) {
    ports = listening_ports(all);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  expect(ports.size() == count, "ports that are open: " + std::to_string(ports.size()));
  for (const int port : ports) expect(port >= first && port < first + kPorts, "in the range: " + std::to_string(port));
}

void wait_for_word(const std::string& path) {
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

ddp_case(rank_0_listens_in_the_range) {
  const Folder folder;
  const std::string word = folder.path() + "/come";
  const int first = free_port();
  Procs procs(kRanks, [&](int rank, Reporter&) {
    setenv("DDP_PORT_RANGE", (std::to_string(first) + "-" + std::to_string(first + kPorts - 1)).c_str(), 1);
    setenv("DDP_SOCKET_IFNAME", "no_such_interface,=lo,lo", 1);
    if (rank == kLate) wait_for_word(word);
    join_process_group(folder, rank, kRanks, quick_options(rank, kRanks))->barrier();
    return "";
  });
  expect_ports(procs, 1, first);
  std::ofstream(word) << "now";
  expect_success(procs);
}

ddp_case(data_links_listen_in_the_range) {
  const Folder folder;
  const std::string word = folder.path() + "/come";
  const int first = free_port();
  ForkHub hub(kRanks);
  Procs procs(kRanks, [&](int rank, Reporter&) {
    ForkControl control(hub, rank, 10'000);
    bootstrap::Failure failure;
    ddp_group_options options{
        .timeout_ms = 20'000, .rendezvous_timeout_ms = 20'000, .first_port = first, .last_port = first + kPorts - 1};
    if (rank == kLate) wait_for_word(word);
    const auto links = socket::make_socket_transport(collective::TransportContext{&control, &failure, options},
                                                     socket::load_module(), "127.0.0.1", socket::SocketOptions{});
    float one = 1;
    links->all_reduce(flat_tensor(&one, DDP_F32, 1), DDP_SUM);
    expect(one == kRanks, "the sum");
    expect(listening_ports({getpid()}).empty(), "no port is open once the links are made");
    links->shutdown();
    return "";
  });
  hub.release();
  expect_ports(procs, kRanks - 1, first);
  std::ofstream(word) << "now";
  expect_success(procs);
}

/// Gloo listens there, whether it is to be connected to or not.
ddp_case(nobody_is_connected_to_the_broadcast_address_of_the_loopback_network) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, "127.255.255.255", &address.sin_addr);
  socklen_t bytes = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  const bootstrap::net::Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  expect(::bind(listener.get(), at, bytes) == 0 && ::listen(listener.get(), 8) == 0 &&
             ::getsockname(listener.get(), at, &bytes) == 0,
         "a socket that listens there");
  for (const char* to : {"127.255.255.255", "127.0.0.1"}) {
    inet_pton(AF_INET, to, &address.sin_addr);
    const bootstrap::net::Socket client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    expect(::connect(client.get(), at, bytes) != 0, std::string("no connection to ") + to);
  }
}

ddp_before_cases(need_gloo());
