// SPDX-License-Identifier: Apache-2.0
// Messages between processes when something is wrong: a rank that is killed while others wait for it, on every transport; a
// fork; ports that are open only while a connection is made, in the range; strangers at them; and a recovery, after which no
// message of before is received.
#include "ddp/messages.h"

#include "control/net.hpp"
#include "ddp/recover.h"
#include "group/messages.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"
#include "support/meeting.hpp"
#include "support/stranger.hpp"
#include "support/values.hpp"

constexpr int kRanks = 4;
constexpr int kDead = 2;
constexpr int64_t kMany = 500'000;

Tensor tensor_of(std::vector<float>& values) {
  return flat_tensor(values.data(), DDP_F32, static_cast<int64_t>(values.size()));
}

std::string place_of(const Folder& folder) { return "file://" + folder.path() + "/meet"; }

ddp_group_options options_on(Path path, int rank, int size) {
  if (path == Path::kHosts) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
  ddp_group_options options = world_options(rank, size);
  options.backend = path == Path::kHosts ? DDP_BACKEND_AUTO : path == Path::kShm ? DDP_BACKEND_SHM : DDP_BACKEND_GLOO;
  return options;
}

/// What the others wait in when rank 2 dies.
enum class In { kReceive, kSend, kAnySource, kAllToAll };

void wait_for_the_dead(group::Group& group, In in) {
  std::vector<float> values(kMany);
  switch (in) {
    case In::kReceive: static_cast<void>(group::receive_message(group, tensor_of(values), kDead, 3)); break;
    case In::kSend: group::send_message(group, tensor_of(values), kDead, 3); break;
    case In::kAnySource: static_cast<void>(group::receive_message(group, tensor_of(values), DDP_ANY_SOURCE, 3)); break;
    case In::kAllToAll: {
      std::vector<float> output(kMany);
      group::all_to_all(group, tensor_of(values), tensor_of(output), {});
      break;
    }
  }
}

void a_killed_rank_is_named_by_all_who_wait_for_it(Path path) {
  if (path != Path::kShm && !has_gloo()) return;
  for (const In in : {In::kReceive, In::kSend, In::kAnySource, In::kAllToAll}) {
    const Folder folder;
    Procs procs(kRanks, [&](int rank, Reporter& report) {
      signal(SIGPIPE, SIG_DFL);
      const auto group = group::Group::create(place_of(folder).c_str(), options_on(path, rank, kRanks));
      std::vector<float> one{1};
      if (rank == kDead)  // every connection is there
        for (int peer = 0; peer < kRanks; ++peer)
          if (peer != rank) group::send_message(*group, tensor_of(one), peer, 1);
      if (rank != kDead) static_cast<void>(group::receive_message(*group, tensor_of(one), kDead, 1));
      group->barrier();
      report.say("ready");
      if (rank == kDead)
        for (;;) pause();
      std::string text;
      try {
        wait_for_the_dead(*group, in);
      } catch (const Error& error) {
        text = std::string(status_name(error.status())) + ": " + error.text();
      }
      for (int n = 0; n < 2; ++n)  // later calls repeat it
        expect_contains(text,
                        expect_error(DDP_ERROR_PEER_FAILED, [&] { group::send_message(*group, tensor_of(one), kDead, 1); }));
      return text;
    });
    for (int rank = 0; rank < kRanks; ++rank) procs.wait_for(rank, "ready");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others wait for it then; they may also come later
    procs.signal(kDead, SIGKILL);
    const std::vector<ProcResult> results = procs.wait(30'000);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == kDead) continue;
      const ProcResult& result = results[static_cast<size_t>(rank)];
      expect(result.exit_code == 0 && !result.timed_out, "rank " + std::to_string(rank) + ": " + result.describe());
      expect_contains(result.text, "DDP_ERROR_PEER_FAILED: rank 2 (");
      expect(result.text == results[0].text, "one cause: " + result.text + " and " + results[0].text);
    }
  }
}

ddp_case(ports_are_open_only_while_a_connection_is_made) {
  if (!has_gloo()) return;
  constexpr int kPorts = 16;
  const Folder folder;
  const int first = free_port();
  Procs procs(2, [&](int rank, Reporter& report) {
    ddp_group_options options = options_on(Path::kGloo, rank, 2);
    options.first_port = first;
    options.last_port = first + kPorts - 1;
    const auto group = group::Group::create(place_of(folder).c_str(), options);
    group->barrier();
    expect(listening_ports({getpid()}).empty(), "no port is open before the first message");
    std::vector<float> one{static_cast<float>(rank)};
    if (rank == 0) group::send_message(*group, tensor_of(one), 1, 1);
    if (rank == 1) expect_equal(group::receive_message(*group, tensor_of(one), 0, 1), 0, "the sender");
    group->barrier();
    wait_until([] { return listening_ports({getpid()}).empty(); });
    report.say("closed");
    group->barrier();
  });
  expect_success(procs);
}

/// Holds all ports of the range that no other process holds.
std::vector<bootstrap::net::Socket> take_ports(int first, int last) {
  std::vector<bootstrap::net::Socket> taken;
  const auto here = bootstrap::net::resolve("0.0.0.0", os::Deadline::never()).front();
  for (int port = first; port <= last; ++port) {
    int error = 0;
    taken.push_back(bootstrap::net::listen_at(here.with_port(port), error));
  }
  return taken;
}

void no_port_is_needed_later_if_all_connect_with_the_group(bool connect_all) {
  if (!has_gloo()) return;
  constexpr int kPorts = 8;
  const Folder folder;
  const int first = free_port();
  Procs procs(3, [&](int rank, Reporter&) {
    ddp_group_options options = options_on(Path::kGloo, rank, 3);
    options.first_port = first;
    options.last_port = first + kPorts - 1;
    options.connect_all = connect_all ? 1 : 0;
    const auto group = group::Group::create(place_of(folder).c_str(), options);
    group->barrier();
    const auto taken = take_ports(options.first_port, options.last_port);
    group->barrier();
    std::vector<float> one{1};
    const auto to_next = [&] { group::send_message(*group, tensor_of(one), (rank + 1) % 3, 1); };
    if (connect_all) {
      to_next();
      static_cast<void>(group::receive_message(*group, tensor_of(one), (rank + 2) % 3, 1));
    } else {
      expect_error(DDP_ERROR_IO, to_next, {std::to_string(first) + "-" + std::to_string(first + kPorts - 1)});
    }
    group->barrier();
  });
  expect_success(procs);
}

// A rank that is stopped does not connect, so the port of the one that invites it stays open for a while.
ddp_case(strangers_at_an_open_port_change_nothing) {
  if (!has_gloo()) return;
  for (const Attack attack : {Attack::kBogusFrames, Attack::kSilence, Attack::kFlood, Attack::kReplay}) {
    const Folder folder;
    Procs procs(2, [&](int rank, Reporter& report) {
      ddp_group_options options = options_on(Path::kGloo, rank, 2);
      setenv("DDP_SOCKET_IFNAME", "lo", 1);  // where the stranger looks
      options.dead_after_ms = 60'000;        // it is stopped, and the stranger may get no core for a while
      options.timeout_ms = options.rendezvous_timeout_ms = 60'000;
      const auto group = group::Group::create(place_of(folder).c_str(), options);
      group->barrier();
      report.say("ready");
      const auto wait_for = [&](const char* name) {
        while (!std::filesystem::exists(folder.path() + name)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      };
      std::vector<float> values(kMany, 7), got(kMany);
      wait_for(rank == 0 ? "/send" : "/receive");
      if (rank == 0) group::send_message(*group, tensor_of(values), 1, 1);
      if (rank == 1) {
        static_cast<void>(group::receive_message(*group, tensor_of(got), 0, 1));
        expect(got == values, "the message");
      }
      group->barrier();
    });
    procs.wait_for(1, "ready");
    procs.signal(1, SIGSTOP);
    std::ofstream(folder.path() + "/send") << "now";
    Stranger stranger({procs.pid(0)}, attack);
    wait_until([&] { return stranger.connections() > 20; });
    procs.signal(1, SIGCONT);
    std::ofstream(folder.path() + "/receive") << "now";
    for (const ProcResult& result : procs.wait(60'000))
      expect(result.exit_code == 0, std::string(attack_name(attack)) + ": " + result.describe());
  }
}

ddp_case(a_fork_disturbs_nothing) {
  if (!has_gloo()) return;
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    const auto group = group::Group::create(place_of(folder).c_str(), options_on(Path::kGloo, rank, 2));
    std::vector<float> one{static_cast<float>(rank)};
    const int other = 1 - rank;
    for (int turn = 0; turn < 3; ++turn) {
      if (rank == 0) group::send_message(*group, tensor_of(one), other, turn);
      if (rank == 1) static_cast<void>(group::receive_message(*group, tensor_of(one), other, turn));
      const pid_t child = fork();
      if (child == 0) _exit(0);
      int status = 0;
      waitpid(child, &status, 0);
    }
    group->barrier();
  });
  expect_success(procs);
}

ddp_case_of(a_killed_rank_is_named_by_all_who_wait_for_it(Path::kShm));
ddp_case_of(a_killed_rank_is_named_by_all_who_wait_for_it(Path::kGloo));
ddp_case_of(a_killed_rank_is_named_by_all_who_wait_for_it(Path::kHosts));
ddp_case_of(no_port_is_needed_later_if_all_connect_with_the_group(true));
ddp_case_of(no_port_is_needed_later_if_all_connect_with_the_group(false));
