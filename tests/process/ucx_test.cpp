// SPDX-License-Identifier: Apache-2.0
// What is UCX's own, over its module: endpoints in one process, then groups of processes. Sums, deaths and time-outs are
// those of process/gloo, which runs over UCX too (support/carrier.hpp). Skipped with a printed reason when the module is not
// there.
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "collective/socket/endpoint.hpp"
#include "collective/socket/module.hpp"
#include "support/forking.hpp"
#include "support/group_procs.hpp"
#include "support/values.hpp"

namespace {

using namespace ddp;
using namespace ddp::test;
using socket::LinkResult;

constexpr int64_t kLimitMs = 10'000;
constexpr uint64_t kSlot = 4;

/// Two endpoints of this process, which know each other.
struct Two {
  socket::Endpoint a, b;
  Two()
      : a(socket::load_module(socket::Carrier::kUcx), 0, 2, "", true),
        b(socket::load_module(socket::Carrier::kUcx), 1, 2, "", true) {
    expect(a.attach(1, {}, b.address()) == LinkResult::kDone, a.error());
    expect(b.attach(0, {}, a.address()) == LinkResult::kDone, b.error());
  }
};

socket::Endpoint::Ticket sent(socket::Endpoint& from, int32_t to, const Bytes& data, uint64_t slot = kSlot) {
  socket::Endpoint::Ticket ticket = 0;
  expect(from.send(to, slot, data.data(), static_cast<int64_t>(data.size()), ticket) == LinkResult::kDone, from.error());
  return ticket;
}

socket::Endpoint::Ticket awaited(socket::Endpoint& at, int32_t from, Bytes& data, uint64_t slot = kSlot) {
  socket::Endpoint::Ticket ticket = 0;
  expect(at.receive(from, slot, data.data(), static_cast<int64_t>(data.size()), ticket) == LinkResult::kDone, at.error());
  return ticket;
}

Bytes numbered(size_t bytes, int first) {
  Bytes data(bytes);
  for (size_t at = 0; at < bytes; ++at) data[at] = static_cast<std::byte>((at * 7 + static_cast<size_t>(first)) % 251);
  return data;
}

void messages_of_a_slot_keep_their_order_whatever_their_size(void**) {
  Two two;
  const size_t sizes[] = {1, 100, 5'000, 300'000, 3'000'000, 17};
  std::vector<Bytes> out, in;
  std::vector<socket::Endpoint::Ticket> sends, receives;
  for (const size_t size : sizes) {
    out.push_back(numbered(size, static_cast<int>(out.size())));
    in.emplace_back(size + 10);  // a message may be shorter than its receive
  }
  for (size_t at = 0; at < out.size(); ++at) {
    if (at % 2 == 0) receives.push_back(awaited(two.b, 0, in[at]));
    sends.push_back(sent(two.a, 1, out[at]));
    if (at % 2 == 1) receives.push_back(awaited(two.b, 0, in[at]));
  }
  for (size_t at = 0; at < out.size(); ++at) {
    expect(two.b.wait(receives[at], kLimitMs) == LinkResult::kDone, two.b.error());
    expect(two.a.wait(sends[at], kLimitMs) == LinkResult::kDone, two.a.error());
    expect(std::memcmp(in[at].data(), out[at].data(), out[at].size()) == 0, std::to_string(sizes[at]) + " bytes");
  }
}

// The sender computes; nobody but its own thread can move what it has begun to send.
void a_message_moves_while_its_sender_does_not_wait(void**) {
  Two two;
  const Bytes out = numbered(20'000'000, 3);
  Bytes in(out.size());
  const auto receive = awaited(two.b, 0, in);
  const auto send = sent(two.a, 1, out);
  expect(two.b.wait(receive, kLimitMs) == LinkResult::kDone, two.b.error());
  expect(in == out, "the bytes");
  expect(two.a.wait(send, kLimitMs) == LinkResult::kDone, two.a.error());
}

void a_wait_that_timed_out_may_be_made_again(void**) {
  Two two;
  Bytes in(100);
  const auto receive = awaited(two.b, 0, in);
  const auto begin = std::chrono::steady_clock::now();
  expect(two.b.wait(receive, 50) == LinkResult::kTimedOut, "nothing was sent");
  expect(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(50), "not before its time");
  const uint64_t moved = two.b.moved();
  const Bytes out = numbered(100, 1);
  const auto send = sent(two.a, 1, out);
  expect(two.b.wait(receive, kLimitMs) == LinkResult::kDone && in == out, "now it came");
  expect(two.b.moved() != moved, "something moved");
  expect(two.a.wait(send, kLimitMs) == LinkResult::kDone, two.a.error());
}

void abort_ends_a_wait_of_another_thread(void**) {
  Two two;
  Bytes in(100);
  const auto receive = awaited(two.b, 0, in);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    two.b.abort();
  });
  const LinkResult result = two.b.wait(receive, kLimitMs);
  other.join();
  expect(result == LinkResult::kAborted, "aborted");
  two.b.close();
  two.b.abort();  // may come at any time
}

// Half of it is under way: UCX must have let go of the memory when close() returns.
void close_with_messages_under_way_ends_soon_and_leaves_memory_alone(void**) {
  Two two;
  std::vector<Bytes> in(4, Bytes(8'000'000)), out(4, numbered(8'000'000, 1));
  for (size_t at = 0; at < in.size(); ++at) (void)awaited(two.b, 0, in[at]);
  for (const Bytes& data : out) (void)sent(two.a, 1, data);
  Bytes never(1000);
  (void)awaited(two.b, 0, never, kSlot + 1);
  const auto begin = std::chrono::steady_clock::now();
  two.b.close();
  expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(4), "soon");
  const std::vector<Bytes> left = in;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  expect(left == in, "nobody writes any more");
  socket::Endpoint::Ticket ticket = 0;
  expect(two.b.receive(0, kSlot, never.data(), 10, ticket) == LinkResult::kFailed, "it is closed");
  two.a.close();
}

void who_does_not_know_the_secret_is_not_heard(void**) {
  Two two;
  socket::Endpoint stranger(socket::load_module(socket::Carrier::kUcx), 0, 2, "", true);
  std::string known = two.b.address();
  known[0] = static_cast<char>(known[0] ^ 1);  // one of the 64 random bits
  expect(stranger.attach(1, {}, known) == LinkResult::kDone, stranger.error());
  const Bytes lie = numbered(100, 9), truth = numbered(100, 1);
  Bytes in(100);
  const auto receive = awaited(two.b, 0, in);
  (void)sent(stranger, 1, lie);
  expect(two.b.wait(receive, 200) == LinkResult::kTimedOut, "the stranger's message is not taken");
  const auto send = sent(two.a, 1, truth);
  expect(two.b.wait(receive, kLimitMs) == LinkResult::kDone && in == truth, "the peer's is");
  expect(two.a.wait(send, kLimitMs) == LinkResult::kDone, two.a.error());
}

ddp_group_options over_ucx() {
  ddp_group_options options = world_options();
  options.backend = DDP_BACKEND_UCX;
  return options;
}

float sum_of_ranks(group::Group& group, int rank) {
  std::vector<float> data(100'000, static_cast<float>(rank + 1));
  group.all_reduce(flat_tensor(data.data(), DDP_F32, 100'000), DDP_SUM);
  expect(data.front() == data.back(), "all alike");
  return data.front();
}

/// On two made-up hosts.
void between_hosts(int rank) { setenv("DDP_TEST_HOST", std::to_string(rank).c_str(), 1); }

void between_hosts_the_user_has_to_trust_the_network(void**) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    between_hosts(rank);
    unsetenv("DDP_INSECURE");
    return expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { (void)join_process_group(folder, rank, 2, over_ucx()); });
  });
  for (const ProcResult& result : procs.wait()) {
    expect(result.exit_code == 0, result.describe());
    expect_contains(result.text, "DDP_INSECURE=1");
  }
}

void between_hosts_it_works_if_he_does(void**) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    between_hosts(rank);
    setenv("DDP_INSECURE", "1", 1);
    const auto group = join_process_group(folder, rank, 2, over_ucx());
    expect(group->backend() == DDP_BACKEND_UCX, "the backend");
    expect(sum_of_ranks(*group, rank) == 3.0F, "the sum");
    return std::string();
  });
  for (const ProcResult& result : procs.wait()) expect(result.exit_code == 0, result.describe());
}

void auto_takes_it_only_where_there_is_an_rdma_device(void**) {
  if (socket::ucx_finds_rdma()) return;  // the other half needs such a device
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    between_hosts(rank);
    setenv("DDP_INSECURE", "1", 1);
    try {
      expect(join_process_group(folder, rank, 2, world_options())->backend() == DDP_BACKEND_GLOO, "the backend");
    } catch (const Error& error) {
      expect_contains(error.text(), "the Gloo module");  // which may be missing
    }
    return std::string();
  });
  for (const ProcResult& result : procs.wait()) expect(result.exit_code == 0, result.describe());
}

/// Where sockets of this process listen.
std::vector<std::string> listening() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string to = std::filesystem::read_symlink(entry.path(), gone).string();
    if (to.rfind("socket:[", 0) == 0) own.insert(to.substr(8, to.size() - 9));
  }
  std::vector<std::string> addresses;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      std::string number, local, remote, state, inode;
      fields >> number >> local >> remote >> state;
      for (int skipped = 0; skipped < 6; ++skipped) fields >> inode;
      if (state == "0A" && own.count(inode) != 0) addresses.push_back(local);
    }
  }
  return addresses;
}

void on_one_host_nobody_outside_can_reach_it(void**) {
  unsetenv("UCX_NET_DEVICES");
  run_group_procs(2, over_ucx(), [](group::Group& group, int rank) {
    expect(group.backend() == DDP_BACKEND_UCX, "the backend");
    expect(sum_of_ranks(group, rank) == 3.0F, "the sum");
    const std::vector<std::string> addresses = listening();
    const char* transports = std::getenv("UCX_TLS");
    if (transports == nullptr || std::strstr(transports, "tcp") != nullptr) expect(!addresses.empty(), "UCX listens");
    for (const std::string& address : addresses) expect(address.rfind("0100007F:", 0) == 0, address + " is not 127.0.0.1");
    group.barrier();
  });
}

/// What is done about signals, by their numbers.
std::vector<void (*)(int)> dispositions() {
  std::vector<void (*)(int)> all;
  for (int number = 1; number < 32; ++number) {
    struct sigaction now {};
    all.push_back(sigaction(number, nullptr, &now) == 0 ? now.sa_handler : nullptr);
  }
  return all;
}

/// Of this process, before and after the module was opened.
std::vector<void (*)(int)> before_opening, after_opening;

void signals_are_left_as_they_were(void**) {
  expect(before_opening == after_opening, "opening the module");
  const std::vector<void (*)(int)> before = dispositions();
  run_group_procs(2, over_ucx(), [&](group::Group& group, int rank) {
    expect(sum_of_ranks(group, rank) == 3.0F, "the sum");
    expect(dispositions() == before, "a group");
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    for (int number = 1; number < 32; ++number) expect(sigismember(&blocked, number) == 0, std::to_string(number));
    group.barrier();
  });
}

void a_death_is_named_and_nothing_is_printed(void**) {
  const Folder folder;
  Procs procs(3, [&](int rank, Reporter& report) {
    const std::string printed = folder.path() + "/printed" + std::to_string(rank);
    std::fflush(stdout);
    const int file = open(printed.c_str(), O_CREAT | O_RDWR, 0600);
    expect(dup2(file, STDOUT_FILENO) == STDOUT_FILENO, "redirected");
    const auto group = join_process_group(folder, rank, 3, over_ucx());
    const std::string text = expect_error(DDP_ERROR_PEER_FAILED, [&] {
      for (int i = 0;; ++i) {
        (void)sum_of_ranks(*group, rank);
        if (i == 2) report.say("running");
      }
    });
    std::fflush(stdout);
    struct stat about {};
    expect(fstat(file, &about) == 0 && about.st_size == 0, "UCX has printed something");
    return text;
  });
  for (int rank = 0; rank < 3; ++rank) procs.wait_for(rank, "running");
  const pid_t victim = procs.pid(1);
  procs.signal(1, SIGKILL);
  const std::vector<ProcResult> results = procs.wait();
  for (const int rank : {0, 2}) {
    expect(results[static_cast<size_t>(rank)].exit_code == 0, results[static_cast<size_t>(rank)].describe());
    expect_contains(results[static_cast<size_t>(rank)].text, "rank 1 (host ");
    expect_contains(results[static_cast<size_t>(rank)].text, "pid " + std::to_string(victim) + ") is gone");
  }
}

void in_a_fork_it_is_refused_and_the_parent_goes_on(void**) {
  run_group_procs(2, over_ucx(), [](group::Group& group, int rank) {
    expect(sum_of_ranks(group, rank) == 3.0F, "before");
    const std::string said = in_fork(Ending::kByExit, []() -> std::string {
      socket::Endpoint(socket::load_module(socket::Carrier::kUcx), 0, 2, "", true);
      return "made";
    });
    expect_contains(said, "cannot use it");
    expect(sum_of_ranks(group, rank) == 3.0F, "after");
  });
}

bool no_ucx() {
  try {
    static_cast<void>(socket::load_module(socket::Carrier::kUcx));
  } catch (const Error& error) {
    std::printf("skipped: %s\n", error.what());
    return true;
  }
  return false;
}

}  // namespace

int main() {
  before_opening = dispositions();
  if (no_ucx()) return 77;
  after_opening = dispositions();
  const CMUnitTest tests[] = {
      // Processes first: the child of a process that has used UCX cannot use it.
      ddp_test(between_hosts_the_user_has_to_trust_the_network),
      ddp_test(between_hosts_it_works_if_he_does),
      ddp_test(auto_takes_it_only_where_there_is_an_rdma_device),
      ddp_test(on_one_host_nobody_outside_can_reach_it),
      ddp_test(signals_are_left_as_they_were),
      ddp_test(a_death_is_named_and_nothing_is_printed),
      ddp_test(in_a_fork_it_is_refused_and_the_parent_goes_on),
      ddp_test(messages_of_a_slot_keep_their_order_whatever_their_size),
      ddp_test(a_message_moves_while_its_sender_does_not_wait),
      ddp_test(a_wait_that_timed_out_may_be_made_again),
      ddp_test(abort_ends_a_wait_of_another_thread),
      ddp_test(close_with_messages_under_way_ends_soon_and_leaves_memory_alone),
      ddp_test(who_does_not_know_the_secret_is_not_heard),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
