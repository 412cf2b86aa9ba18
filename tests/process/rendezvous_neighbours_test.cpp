// SPDX-License-Identifier: Apache-2.0
// Several jobs on one machine with neighbouring ports: rank 0 may walk to a later port, and no rank of one job may ever
// end up in another's group, in any order of arrival.

#include "control/codec.hpp"
#include "control/limits.hpp"
#include "control/messages.hpp"
#include "support/check.hpp"
#include "support/meeting.hpp"
#include "support/procs.hpp"

constexpr int kRanks = 2;
constexpr auto kStep = std::chrono::milliseconds(120);  // between two starts: enough to have knocked at every port

/// The first of `count` ports that were free side by side a moment ago.
int free_ports(int count) {
  for (int tries = 0; tries < 200; ++tries) {
    const int first = 20'000 + static_cast<int>((os::now_ns() / 1'000 + tries * 37) % 12'000);
    std::vector<std::unique_ptr<LoopbackSocket>> held;
    while (static_cast<int>(held.size()) < count) {
      auto socket = std::make_unique<LoopbackSocket>();
      if (!socket->listen(first + static_cast<int>(held.size()))) break;
      held.push_back(std::move(socket));
    }
    if (static_cast<int>(held.size()) == count) return first;
  }
  throw std::runtime_error("no ports side by side are free");
}

/// How a rank gets its place: meets as rank `rank` of the job whose port is `port`.
using Way = std::function<std::unique_ptr<bootstrap::Control>(int port, int rank)>;

std::unique_ptr<bootstrap::Control> by_environment(int port, int rank) {
  ::setenv("RANK", std::to_string(rank).c_str(), 1);
  ::setenv("WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
  const ddp_group_options options = quick_options(-1, -1);
  return bootstrap::meet(
      bootstrap::resolve_meeting("env://", options, [](const char* name) -> const char* { return ::getenv(name); }),
      options);
}

std::unique_ptr<bootstrap::Control> by_torchrun(int port, int rank) {
  ::setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  ::setenv("LOCAL_WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
  ::setenv("TORCHELASTIC_RUN_ID", "none", 1);  // what torchrun sets if the user gives no id
  ::setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  return by_environment(port, rank);
}

std::unique_ptr<bootstrap::Control> by_address(int port, int rank) { return meet_at(tcp_place(port), rank, kRanks); }

/// Each rank sends its job's name; all names that it receives must be its own.
std::string own_job_only(bootstrap::Control& control, const std::string& job) {
  std::string heard;
  for (const std::string& part : control.gather("job", job, os::Deadline::in_ms(20'000))) heard += part + " ";
  control.leave();
  return heard;
}

struct Comer {
  int job, rank;
};

const std::vector<std::vector<Comer>>& start_orders() {
  static const std::vector<std::vector<Comer>> orders = {
      {{0, 0}, {1, 1}, {1, 0}, {0, 1}},  // a later job's rank 1 comes while only the earlier job's rank 0 is there
      {{1, 0}, {0, 1}, {0, 0}, {1, 1}},
      {{0, 1}, {1, 1}, {1, 0}, {0, 0}},  // both wait for their rank 0
      {{0, 0}, {1, 0}, {1, 1}, {0, 1}},
  };
  return orders;
}

void expect_no_mixture(const Way& way, bool agents) {
  for (size_t order = 0; order < start_orders().size(); ++order) {
    const std::vector<Comer>& comers = start_orders()[order];
    const int first = free_ports(6);
    std::vector<std::unique_ptr<LoopbackSocket>> stores;
    for (int job = 0; agents && job < 2; ++job) {
      stores.push_back(std::make_unique<LoopbackSocket>());
      expect(stores.back()->listen(first + job), "the agent's store listens");
    }
    Procs procs(static_cast<int>(comers.size()), [&](int child, Reporter&) {
      const Comer& comer = comers[static_cast<size_t>(child)];
      std::this_thread::sleep_for(child * kStep);
      return own_job_only(*way(first + comer.job, comer.rank), "job" + std::to_string(comer.job));
    });
    const auto results = procs.wait();
    for (size_t child = 0; child < comers.size(); ++child) {
      const std::string job = "job" + std::to_string(comers[child].job) + " ";
      expect(results[child].text == job + job, "start order " + std::to_string(order) + ", " + job + "rank " +
                                                   std::to_string(comers[child].rank) + ": " + results[child].describe());
    }
  }
}

ddp_case(jobs_by_torchrun_do_not_mix) { expect_no_mixture(by_torchrun, false); }
ddp_case(jobs_by_torchrun_whose_stores_hold_the_ports_do_not_mix) { expect_no_mixture(by_torchrun, true); }
ddp_case(jobs_by_plain_variables_do_not_mix) { expect_no_mixture(by_environment, false); }
ddp_case(jobs_by_address_do_not_mix) { expect_no_mixture(by_address, false); }

// Two groups of each of two jobs: names at neighbouring ports.
ddp_case(named_groups_of_two_jobs_do_not_mix) {
  const int first = free_ports(8);
  Procs procs(8, [&](int child, Reporter&) {
    const int job = child & 1, rank = (child >> 1) & 1;
    const std::string name = (child & 4) != 0 ? "left" : "right";
    std::this_thread::sleep_for((child % 3) * kStep);
    const auto control = meet_at(tcp_place(first + job) + "#" + name, rank, kRanks);
    const std::string own = std::to_string(job) + name;
    return own_job_only(*control, own) == own + " " + own + " " ? std::string("own") : std::string("mixed");
  });
  for (const auto& result : procs.wait()) expect(result.text == "own", result.describe());
}

// The launcher's job is a part of the identity for every way to meet, if it gave the rank: here at one and the same address.
ddp_case(jobs_of_two_launchers_at_one_address_do_not_mix) {
  const int port = free_ports(4);
  for (size_t order = 0; order < start_orders().size(); ++order) {
    const std::vector<Comer>& comers = start_orders()[order];
    Procs procs(static_cast<int>(comers.size()), [&](int child, Reporter&) {
      const Comer& comer = comers[static_cast<size_t>(child)];
      std::this_thread::sleep_for(child * kStep);
      ::setenv("RANK", std::to_string(comer.rank).c_str(), 1);
      ::setenv("WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
      ::setenv("TORCHELASTIC_RUN_ID", comer.job == 0 ? "one" : "other", 1);
      const ddp_group_options options = quick_options(-1, -1);
      const auto environment = [](const char* name) -> const char* { return ::getenv(name); };
      const auto control =
          bootstrap::meet(bootstrap::resolve_meeting(tcp_place(port).c_str(), options, environment), options);
      return own_job_only(*control, "job" + std::to_string(comer.job));
    });
    const auto results = procs.wait();
    for (size_t child = 0; child < comers.size(); ++child) {
      const std::string job = "job" + std::to_string(comers[child].job) + " ";
      expect(results[child].text == job + job, "start order " + std::to_string(order) + ": " + results[child].describe());
    }
  }
}

// The host may be written in any way: only the port belongs to the identity.
ddp_case(spellings_of_the_host_are_one_place) {
  const int port = free_ports(2);
  Procs procs(2, [&](int rank, Reporter&) {
    const std::string host = rank == 0 ? "localhost" : "127.0.0.1";
    return own_job_only(*meet_at("tcp://" + host + ":" + std::to_string(port), rank, kRanks), "job");
  });
  for (const auto& result : procs.wait()) expect(result.text == "job job ", result.describe());
}

// A server of another version of libddp: it sends its banner to each caller, and nothing more.
class OtherVersion {
 public:
  OtherVersion(int port, const bootstrap::auth::GroupId& group) {
    expect(listener_.listen(port), "the other version listens");
    bootstrap::messages::Banner banner;
    banner.protocol = bootstrap::limits::kProtocol + 1;
    banner.group = group;
    const bootstrap::Body body(bootstrap::messages::write(banner));
    bytes_ = bootstrap::FrameWriter().frame(bootstrap::FrameType::kBanner, body).head + body.bytes();
  }
  /// In a child of its own, until it is killed.
  void serve() const {
    for (;;) {
      const int fd = ::accept(listener_.fd(), nullptr, nullptr);
      if (fd < 0) continue;
      (void)::send(fd, bytes_.data(), bytes_.size(), MSG_NOSIGNAL);
      ::close(fd);
    }
  }

 private:
  LoopbackSocket listener_;
  std::string bytes_;
};

ddp_case(a_neighbour_of_another_version_is_passed_over) {
  const int first = free_ports(4);
  const OtherVersion other(first + 1, bootstrap::auth::group_id("", "port " + std::to_string(first + 1), ""));
  Procs procs(3, [&](int child, Reporter&) {
    if (child == 2) other.serve();
    if (child == 0) std::this_thread::sleep_for(3 * kStep);  // rank 1 meets the neighbour before its own rank 0
    return own_job_only(*by_address(first, child), "job");
  });
  for (const int rank : {0, 1}) expect(procs.wait_one(rank).text == "job job ", procs.wait_one(rank).describe());
}

ddp_case(another_version_of_the_own_group_is_said_at_once) {
  const int first = free_ports(2);
  const OtherVersion other(first, bootstrap::auth::group_id("", "port " + std::to_string(first), ""));
  Procs procs(2, [&](int child, Reporter&) {
    if (child == 0) other.serve();
    return own_job_only(*by_address(first, 1), "job");
  });
  expect_contains(procs.wait_one(1).text, "DDP_ERROR_MISMATCH: this rank uses version");
  expect(procs.wait_one(1).seconds < 5, "at once");
}

ddp_group_options impatient(int rank) {
  ddp_group_options options = quick_options(rank, kRanks);
  options.rendezvous_timeout_ms = 500;
  return options;
}

ddp_case(both_ends_say_where_rank_0_is_and_what_to_do) {
  ::setenv("DDP_INSECURE", "1", 1);
  const int port = free_ports(1);
  const std::string at = "0.0.0.0:" + std::to_string(port);
  expect_error(DDP_ERROR_TIMED_OUT, [&] { (void)meet_at("tcp://" + at, impatient(0)); },
               {"rank 1 of 2 did not come within 0.5 s; rank 0 listened at " + at, "DDP_SOCKET_IFNAME"});
  expect_error(DDP_ERROR_TIMED_OUT, [&] { (void)meet_at("tcp://" + at, impatient(1)); },
               {"rank 0 was looked for at " + at, "DDP_SOCKET_IFNAME"});
  ::unsetenv("DDP_INSECURE");
  const std::string here = expect_error(DDP_ERROR_TIMED_OUT, [&] { (void)meet_at(tcp_place(port), impatient(1)); });
  expect(here.find("DDP_SOCKET_IFNAME") == std::string::npos, "a loopback address is meant for this host alone: " + here);
}

ddp_case(a_token_is_made_once) {
  const std::string text =
      expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { (void)meet_at("tcp://192.0.2.1:29500", impatient(1)); });
  expect_contains(text, "once and not on each host");
  expect(text.find("$(") == std::string::npos, "no command that gives each host another token: " + text);
}
