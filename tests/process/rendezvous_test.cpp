// SPDX-License-Identifier: Apache-2.0
// How processes find each other, and what strangers, wrong ranks and taken ports do to that.
#include <poll.h>

#include "support/check.hpp"
#include "support/meeting.hpp"
#include "support/procs.hpp"

std::string meet_and_gather(const std::string& place, const ddp_group_options& options) {
  const auto control = meet_at(place, options);
  std::string all;
  for (const std::string& part : control->gather("who", std::to_string(control->rank()), os::Deadline::in_ms(20'000)))
    all += part;
  control->leave();
  return all;
}
std::string meet_and_gather(const std::string& place, int rank, int size) {
  return meet_and_gather(place, quick_options(rank, size));
}

void expect_all(const std::vector<ProcResult>& results, const std::string& wanted) {
  for (size_t rank = 0; rank < results.size(); ++rank)
    expect(results[rank].exit_code == 0 && results[rank].text == wanted,
           "rank " + std::to_string(rank) + " gets " + wanted + ": " + results[rank].describe());
}

ddp_group_options impatient(int rank, int size, int64_t ms) {
  ddp_group_options options = quick_options(rank, size);
  options.rendezvous_timeout_ms = ms;
  return options;
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

ddp_case(the_order_of_arrival_does_not_matter) {
  const int port = free_port();
  Procs procs(3, [&](int rank, Reporter& report) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the others must find no server first
    report.say("comes");
    return meet_and_gather(tcp_place(port), rank, 3);
  });
  expect_all(procs.wait(), "012");
}

ddp_case(one_token_admits_and_another_does_not) {
  const int port = free_port();
  Procs procs(4, [&](int rank, Reporter&) {
    ::setenv("DDP_TOKEN", rank == 3 ? "another token, as long" : "the token of this group", 1);
    if (rank < 2) return meet_and_gather(tcp_place(port), rank, 3);
    if (rank == 3) {
      const auto wait = [&] { (void)meet_and_gather(tcp_place(port), impatient(2, 3, 2'000)); };
      const std::string text =
          expect_error(DDP_ERROR_TIMED_OUT, wait, {"its token is another one (make a token once, not on each host"});
      expect(text.find("as long") == std::string::npos, "the token is not shown");
      return std::string("012");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // after the wrong one
    return meet_and_gather(tcp_place(port), 2, 3);
  });
  expect_all(procs.wait(), "012");
}

ddp_case(a_token_on_one_side_is_said) {
  for (const int with : {0, 1}) {
    const int port = free_port();
    Procs procs(2, [&](int rank, Reporter&) {
      if (rank == with) ::setenv("DDP_TOKEN", "a secret of this test", 1);
      return meet_and_gather(tcp_place(port), impatient(rank, 2, 1'000));
    });
    const auto results = procs.wait();
    expect_contains(results[1].text, with == 0 ? "rank 0 wants a token and this rank has none" : "rank 0 has none");
    expect_contains(results[0].text, "DDP_ERROR_TIMED_OUT: rank 1 of 2 did not come within 1 s");
  }
}

ddp_case(other_addresses_need_a_token) {
  const std::string text =
      expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { (void)meet_and_gather("tcp://0.0.0.0:29500", 0, 2); });
  expect_contains(text, "export DDP_TOKEN=");
  expect_contains(text, "DDP_INSECURE=1");
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { (void)meet_and_gather("tcp://192.0.2.1:29500", 1, 2); });
  const int port = free_port();
  const Variable insecure("DDP_INSECURE", "1");
  Procs procs(2, [&](int rank, Reporter&) { return meet_and_gather("tcp://0.0.0.0:" + std::to_string(port), rank, 2); });
  expect_all(procs.wait(), "01");
}

ddp_case(an_address_of_another_host_cannot_be_listened_on) {
  const Variable insecure("DDP_INSECURE", "1");
  expect_error(DDP_ERROR_IO, [] { (void)meet_and_gather("tcp://192.0.2.1:29500", 0, 2); }, {"192.0.2.1"});
}

ddp_case(names_that_do_not_exist_end_at_the_time_out) {
  const double before = seconds_now();
  const std::string text =
      expect_error(DDP_ERROR_IO, [] { (void)meet_and_gather("tcp://no-such-host.invalid:29500", impatient(1, 2, 500)); });
  expect_contains(text, "no-such-host.invalid");
  expect(seconds_now() - before < 3, "in time");
}

ddp_case(ranks_that_never_come_are_named) {
  const int port = free_port();
  Procs procs(2,
              [&](int rank, Reporter&) { return meet_and_gather(tcp_place(port), impatient(rank == 0 ? 0 : 2, 4, 1'500)); });
  for (const auto& result : procs.wait()) {
    expect_contains(result.text, "DDP_ERROR_TIMED_OUT: ranks 1 and 3 of 4 did not come within 1.5 s");
    expect(result.seconds < 5, "in time");
  }
  const std::string text =
      expect_error(DDP_ERROR_TIMED_OUT, [&] { (void)meet_and_gather(tcp_place(port), impatient(1, 2, 500)); });
  expect_contains(text, "rank 0 did not come to 127.0.0.1:" + std::to_string(port) + " within 0.5 s");
}

ddp_case(wrong_ranks_are_told_and_the_others_wait) {
  const int port = free_port();
  Procs procs(5, [&](int child, Reporter& report) {
    if (child == 0 || child == 1) return meet_and_gather(tcp_place(port), child, 3);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));  // rank 1 must be in
    if (child == 2) {
      const std::string text =
          expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { (void)meet_and_gather(tcp_place(port), 1, 3); });
      expect_contains(text, "rank 1 is taken: rank 1 (host ");
      report.say("told");
      return std::string("012");
    }
    if (child == 3) {
      expect_error(DDP_ERROR_MISMATCH, [&] { (void)meet_and_gather(tcp_place(port), 2, 4); }, {"world size of 4", "with 3"});
      return std::string("012");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // after the wrong ones
    return meet_and_gather(tcp_place(port), 2, 3);
  });
  expect_all(procs.wait(), "012");
}

ddp_case(a_second_rank_0_is_told) {
  const int port = free_port();
  Procs procs(2, [&](int child, Reporter&) {
    if (child == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return meet_and_gather(tcp_place(port), impatient(0, 2, 1'500));
  });
  const auto results = procs.wait();
  expect_contains(results[0].text, "rank 1 of 2 did not come");
  expect_contains(results[1].text, "DDP_ERROR_INVALID_ARGUMENT: rank 0 is taken");
}

ddp_case(a_port_of_another_program_is_named_at_once) {
  LoopbackSocket other;
  expect(other.listen(0), "the other program listens");
  const double before = seconds_now();
  expect_error(DDP_ERROR_IO, [&] { (void)meet_and_gather(tcp_place(other.port()), 0, 2); },
               {"port " + std::to_string(other.port())});
  expect(seconds_now() - before < 3, "at once");
}

int launcher_port = 0;
int launcher_rank = 0;
bool agent_listens = false;
const char* torchrun(const char* name) {
  static std::string port, rank;
  port = std::to_string(launcher_port);
  rank = std::to_string(launcher_rank);
  const std::string key = name;
  if (key == "RANK") return rank.c_str();
  if (key == "WORLD_SIZE") return "3";
  if (key == "MASTER_ADDR") return "127.0.0.1";
  if (key == "MASTER_PORT") return port.c_str();
  if (key == "TORCHELASTIC_RUN_ID") return "run";
  if (key == "TORCHELASTIC_USE_AGENT_STORE") return agent_listens ? "True" : nullptr;
  return nullptr;
}

ddp_case(a_launcher_on_its_port_is_passed_over) {
  for (const bool said : {false, true}) {
    LoopbackSocket agent;
    expect(agent.listen(0), "the agent listens and says nothing");
    launcher_port = agent.port();
    agent_listens = said;
    Procs procs(3, [&](int rank, Reporter&) {
      launcher_rank = rank;
      const ddp_group_options options = quick_options(-1, -1);
      const auto control = bootstrap::meet(bootstrap::resolve_meeting("env://", options, torchrun), options);
      std::string all;
      for (const std::string& part : control->gather("who", std::to_string(control->rank()), os::Deadline::in_ms(20'000)))
        all += part;
      control->leave();
      return all;
    });
    expect_all(procs.wait(), "012");
  }
}

ddp_case(two_groups_meet_at_one_place_at_once) {
  const int port = free_port();
  Procs procs(6, [&](int child, Reporter&) {
    const std::string name = child % 2 == 0 ? "#even" : "#odd";
    const auto control = meet_at(tcp_place(port) + name, child / 2, 3);
    std::string all;
    for (const std::string& part : control->gather("who", name, os::Deadline::in_ms(20'000))) all += part;
    control->leave();
    return all == name + name + name ? std::string("own") : all;
  });
  expect_all(procs.wait(), "own");
}

// What strangers send, and then nothing, or the end.
const std::vector<std::string>& strange_words() {
  static const std::vector<std::string> words = {
      "",
      "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
      std::string("\xff\xff\xff\xff\x02", 5),
      std::string("\xff\xff\xff\x7f\x02", 5),
      std::string("\x00\x01\x00\x00\x02", 5),
      std::string("\x00\x00\x00\x00\x00", 5),
      std::string(100'000, 'A'),
      std::string(256, '\0'),
  };
  return words;
}

ddp_case(strangers_do_not_disturb_a_meeting) {
  const int port = free_port();
  Procs procs(3, [&](int rank, Reporter& report) {
    if (rank != 2) return meet_and_gather(tcp_place(port), rank, 3);
    std::vector<std::unique_ptr<LoopbackSocket>> strangers;
    const os::Deadline deadline = os::Deadline::in_ms(10'000);
    while (strangers.size() < 300) {
      auto stranger = std::make_unique<LoopbackSocket>();
      if (!stranger->connect(port)) {  // rank 0 is not there yet
        expect(!deadline.passed(), "rank 0 comes");
        std::this_thread::yield();
        continue;
      }
      const std::string& words = strange_words()[strangers.size() % strange_words().size()];
      (void)::send(stranger->fd(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      strangers.push_back(std::move(stranger));
    }
    report.say("strangers wait");
    const double before = seconds_now();
    std::string all = meet_and_gather(tcp_place(port), rank, 3);
    expect(seconds_now() - before < 2, "an honest rank joins meanwhile");
    return all;
  });
  expect_all(procs.wait(), "012");
}

ddp_case(slow_and_silent_strangers_are_closed_in_time) {
  const int port = free_port();
  Procs procs(1, [&](int, Reporter&) { return meet_and_gather(tcp_place(port), impatient(0, 2, 6'500)); });
  std::vector<std::unique_ptr<LoopbackSocket>> strangers;
  while (strangers.size() < 3) {
    auto stranger = std::make_unique<LoopbackSocket>();
    if (stranger->connect(port)) strangers.push_back(std::move(stranger));
  }
  const double before = seconds_now();
  size_t closed = 0;
  while (closed < strangers.size() && seconds_now() - before < 8) {
    closed = 0;
    for (auto& stranger : strangers) {
      char bytes[256];
      (void)::send(stranger->fd(), "\1", 1, MSG_NOSIGNAL | MSG_DONTWAIT);  // one byte now and then
      const ssize_t got = ::recv(stranger->fd(), bytes, sizeof bytes, MSG_DONTWAIT);
      closed += got == 0 || (got < 0 && errno != EAGAIN) ? 1 : 0;
    }
    pollfd nothing{-1, 0, 0};
    (void)::poll(&nothing, 1, 200);
  }
  expect_equal(closed, strangers.size(), "closed strangers");
  expect_contains(procs.wait()[0].text, "rank 1 of 2 did not come");
}

std::string fresh_path() { return "/tmp/ddp-meet-" + std::to_string(getpid()) + "-" + std::to_string(os::now_ns()); }

ddp_case(ranks_meet_at_a_file) {
  const std::string path = fresh_path();
  // What an earlier run has left behind, in three kinds.
  for (const char* stale : {"", "nonsense\n", "libddp meets here, 2\n127.0.0.1:9\nword\ntoken\nhost\nboot\n1/1/1\n"}) {
    if (*stale != '\0') std::ofstream(path) << stale;
    for (const char* name : {"", "#other"}) {
      Procs procs(3, [&](int rank, Reporter&) { return meet_and_gather("file://" + path + name, rank, 3); });
      expect_all(procs.wait(), "012");
    }
    expect(::access(path.c_str(), F_OK) != 0, "nothing is left behind");
  }
  expect_error(DDP_ERROR_IO, [] { (void)meet_and_gather("file:///no/such/folder/x", 0, 2); }, {"/no/such/folder/x"});
}

ddp_case(two_files_hold_two_meetings) {
  const std::string path = fresh_path();
  Procs procs(2, [&](int rank, Reporter&) {
    for (int turn = 0; turn < 10; ++turn)
      expect_equal(meet_and_gather("file://" + path, rank, 2), std::string("01"), "turn");
    return std::string("ok");
  });
  expect_all(procs.wait(), "ok");
}

// A store in memory that the processes share.
struct Shelf {
  std::atomic<int64_t> bytes;
  char value[4096];
  char key[256];
};

int32_t put(void* shelf, const char* key, const void* value, int64_t bytes) {
  auto* to = static_cast<Shelf*>(shelf);
  std::memcpy(to->value, value, static_cast<size_t>(bytes));
  std::strncpy(to->key, key, sizeof to->key - 1);
  to->bytes = bytes;
  return 0;
}

int32_t get(void* shelf, const char* key, void* value, int64_t capacity, int64_t timeout_ms, int64_t* out_bytes) {
  auto* from = static_cast<Shelf*>(shelf);
  const os::Deadline deadline = os::Deadline::in_ms(timeout_ms);
  while (from->bytes.load() == 0 || std::strcmp(from->key, key) != 0) {
    if (deadline.passed()) return 1;
    std::this_thread::yield();
  }
  if (from->bytes > capacity) return 2;
  *out_bytes = from->bytes;
  std::memcpy(value, from->value, static_cast<size_t>(from->bytes.load()));
  return 0;
}

ddp_case(ranks_meet_through_a_store) {
  void* page = ::mmap(nullptr, sizeof(Shelf), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Procs procs(3, [&](int rank, Reporter&) {
    const ddp_store store{sizeof(ddp_store), put, get, page};
    ddp_group_options options = quick_options(rank, 3);
    options.store = &store;
    return meet_and_gather("store://#mine", options);
  });
  expect_all(procs.wait(), "012");
  expect_equal(std::string(static_cast<Shelf*>(page)->key), std::string("ddp/mine/rank0"), "key");
  ::munmap(page, sizeof(Shelf));
}

ddp_case(a_store_that_fails_is_said) {
  const ddp_store store{sizeof(ddp_store), [](void*, const char*, const void*, int64_t) -> int32_t { return 7; },
                        [](void*, const char*, void*, int64_t, int64_t, int64_t*) -> int32_t { return 8; }, nullptr};
  for (const int rank : {0, 1}) {
    ddp_group_options options = quick_options(rank, 2);
    options.store = &store;
    expect_error(DDP_ERROR_CALLBACK, [&] { (void)meet_and_gather("store://", options); },
                 {rank == 0 ? "set failed with 7" : "get failed with 8"});
  }
}
