// SPDX-License-Identifier: Apache-2.0
// A group that recovers has new streams for messages: messages that were sent before and not received are dropped, also with
// the same tag, and the ranks that are left send and receive with their new numbers.

#include "support/check.hpp"
#include "support/on_processes.hpp"
#include "support/public_api.hpp"

constexpr int kRanks = 4;
constexpr int kDead = 1;

ddp_tensor tensor_of(std::vector<float>& values) {
  ddp_tensor tensor;
  const auto count = static_cast<int64_t>(values.size());
  OK(ddp_tensor_init(&tensor, values.data(), DDP_F32, 1, &count));
  return tensor;
}

void send(ddp_group* group, float value, size_t count, int32_t peer) {
  std::vector<float> values(count, value);
  const ddp_tensor tensor = tensor_of(values);
  OK(ddp_group_send(group, &tensor, peer, 1, nullptr));
}

float receive(ddp_group* group, size_t count, int32_t source) {
  std::vector<float> values(count);
  const ddp_tensor tensor = tensor_of(values);
  OK(ddp_group_receive(group, &tensor, source, 1, nullptr, nullptr));
  expect(values == std::vector<float>(count, values[0]), "all of one message");
  return values[0];
}

/// Each rank sends to each rank; value: the sender and the time.
void exchange_all(ddp_group* group, float turn) {
  const int32_t me = ddp_group_get_rank(group), size = ddp_group_get_size(group);
  for (int32_t peer = 0; peer < size; ++peer)
    if (peer != me) send(group, turn + static_cast<float>(me), 100, peer);
  for (int32_t peer = 0; peer < size; ++peer)
    if (peer != me)
      expect_equal(receive(group, 100, peer), turn + static_cast<float>(peer), "of rank " + std::to_string(peer));
}

ddp_case_on_hosts(a_new_generation_sees_no_old_message, Hosts::kShared, Hosts::kGloo, Hosts::kSeveral) {
  const Folder folder;
  Procs procs(kRanks, [&](int rank, Reporter& report) {
    if (hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    ddp_group_options options = patient_options(rank, kRanks);
    options.backend = options_on(hosts).backend;
    options.recoverable = 1;
    ddp_group* group = create_group("file://" + folder.path() + "/meet", options);
    exchange_all(group, 100);
    const int32_t next = (rank + 1) % kRanks;
    send(group, -1, 100, next);  // no rank receives it before the recovery
    OK(ddp_group_barrier(group));
    report.say("ready");
    if (rank == kDead)
      for (;;) pause();
    std::vector<float> nothing(7);
    const ddp_tensor tensor = tensor_of(nothing);
    const ddp_status status = ddp_group_receive(group, &tensor, kDead, 9, nullptr, nullptr);
    expect_equal(status, DDP_ERROR_PEER_FAILED, std::string("status of a receive from the dead: ") + ddp_last_error());
    OK(ddp_group_recover(group, nullptr, nullptr));
    expect_equal(ddp_group_get_size(group), kRanks - 1, "ranks that are left");
    exchange_all(group, 200);
    exchange_all(group, 300);
    OK(ddp_group_barrier(group));
    ddp_group_destroy(group);
  });
  for (int rank = 0; rank < kRanks; ++rank) procs.wait_for(rank, "ready");
  procs.signal(kDead, SIGKILL);
  const std::vector<ProcResult> results = procs.wait(60'000);
  for (int rank = 0; rank < kRanks; ++rank)
    if (rank != kDead)
      expect(results[static_cast<size_t>(rank)].exit_code == 0,
             "rank " + std::to_string(rank) + ": " + results[static_cast<size_t>(rank)].describe());
}

/// Ranks with one thread that wait for each other: it breaks the group, which recovers, and is found there anew. Before it a
/// rank forks, as a DataLoader does, and its child ends without a word.
ddp_case_on_hosts(a_deadlock_is_found_in_each_generation, Hosts::kShared, Hosts::kGloo, Hosts::kSeveral) {
  const Folder folder;
  Procs procs(kRanks, [&](int rank, Reporter&) {
    if (hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
    ddp_group_options options = patient_options(rank, kRanks);
    options.backend = options_on(hosts).backend;
    options.recoverable = options.one_thread = 1;
    ddp_group* group = create_group("file://" + folder.path() + "/meet", options);
    for (const float turn : {100.0F, 200.0F, 300.0F}) {
      exchange_all(group, turn);
      if (rank == 0) {
        const pid_t child = fork();
        if (child == 0) _exit(7);
        int status = 0;
        expect(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7, "the child");
      }
      std::vector<float> values(7);
      const ddp_tensor tensor = tensor_of(values);
      const ddp_status status = ddp_group_receive(group, &tensor, (rank + 1) % kRanks, 9, nullptr, nullptr);
      expect_equal(status, DDP_ERROR_DIFFERENT_CALLS, std::string("a ring of receives: ") + ddp_last_error());
      expect_contains(ddp_last_error(), "with tag 9");
      OK(ddp_group_recover(group, nullptr, nullptr));
      expect_equal(ddp_group_get_size(group), kRanks, "all of them");
    }
    exchange_all(group, 400);
    OK(ddp_group_barrier(group));
    ddp_group_destroy(group);
    return std::string("done");
  });
  expect_success(procs, 120'000);
}
