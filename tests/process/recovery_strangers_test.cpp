// SPDX-License-Identifier: Apache-2.0
// Strangers fill the queue of every port of a group that can recover, and then a rank dies, while another one still
// computes: the others wait for it as they do without strangers, because a queue that is half full is emptied.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "core/attempt.hpp"
#include "group/recovery.hpp"
#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/impostor.hpp"
#include "support/stranger.hpp"

constexpr int kMoreThanWait = SOMAXCONN + 200;
constexpr auto kComputes = std::chrono::milliseconds(2'500);  // longer than a port may be out of reach

/// Connected and closed: it waits in the queue until a thread takes it out.
void knock(const sockaddr_in& address) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  (void)::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::close(fd);
}

std::string be_rank(const Folder& folder, int rank, bool is_late, Reporter& report) {
  ddp_group_options options = world_options();
  options.recoverable = 1;
  const auto group = join_process_group(folder, rank, 3, options);
  group->barrier();
  report.say("stands");
  while (!try_to([&] {
    group->barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  })) {
  }
  if (is_late) std::this_thread::sleep_for(kComputes);
  static_cast<void>(group::Recovery::run(*group, group::RecoveryRule()));
  group->barrier();
  return "size " + std::to_string(group->size());
}

void a_full_queue_makes_nobody_silent(int late) {
  const Folder folder;
  Procs procs(3, [&](int rank, Reporter& report) { return be_rank(folder, rank, rank == late, report); });
  for (int rank = 0; rank < 3; ++rank) procs.wait_for(rank, "stands");
  for (const int port : listening_ports({procs.pid(1), procs.pid(2)})) {
    const sockaddr_in at = place_of_port(port);
    for (int i = 0; i < kMoreThanWait; ++i) knock(at);
  }
  procs.signal(0, SIGKILL);
  const std::vector<ProcResult> results = procs.wait(60'000);
  for (size_t rank = 1; rank < 3; ++rank) expect_equal(results[rank].text, "size 2", results[rank].describe());
}

ddp_case_of(a_full_queue_makes_nobody_silent(1));
ddp_case_of(a_full_queue_makes_nobody_silent(2));
