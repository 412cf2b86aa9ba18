// SPDX-License-Identifier: Apache-2.0
// A rank that destroys its group takes nothing from the others: what it has completed, they complete, however much later
// they come to it. Calls that it did not join end with its name. Ranks are processes on two made-up hosts; rank 2 alone
// links the second one. Skipped with a printed reason when the Gloo module is not there.

#include "support/check.hpp"
#include "support/goes_on.hpp"
#include "support/on_processes.hpp"

constexpr int kRanks = 4;

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

using Call = std::function<void(group::Group&)>;

void await_file(const std::string& path) {
  wait_until([&] { return std::filesystem::exists(path); });
}

void touch(const std::string& path) { std::ofstream(path) << "now"; }

std::shared_ptr<group::Group> join(const Folder& folder, int rank) {
  setenv("DDP_TEST_HOST", std::to_string(rank / 2).c_str(), 1);
  return join_process_group(folder, rank, kRanks, options_on(Hosts::kSeveral));
}

/// Rank 2 has sent its messages and is stopped, so rank 3 waits behind it while ranks 0 and 1 complete the call and
/// rank 1 leaves.
void leave_before_the_other_host_is_through(const Call& call) {
  const Folder folder;
  const std::string go = folder.path() + "/go", over = folder.path() + "/over";
  Procs procs(kRanks, [&](int rank, Reporter& report) {
    auto group = join(folder, rank);
    group->barrier();
    if (rank < 2) await_file(go);
    report.say("calls");
    call(*group);
    if (rank != 1) await_file(over);
    group.reset();
    report.say("left");
  });
  procs.wait_for(2, "calls");
  procs.wait_for(3, "calls");
  sleep_ms(300);
  procs.signal(2, SIGSTOP);
  touch(go);
  procs.wait_for(1, "left");
  sleep_ms(500);  // rank 3 gets the report
  procs.signal(2, SIGCONT);
  sleep_ms(100);
  touch(over);
  expect_success(procs, 60'000);
}

ddp_case(what_a_rank_completed_before_it_left_completes_on_all) {
  leave_before_the_other_host_is_through([](group::Group& group) { group.barrier(); });
  leave_before_the_other_host_is_through([](group::Group& group) {
    std::vector<float> data(16, 2.0F);
    group.all_reduce(flat_tensor(data.data(), DDP_F32, 16), DDP_SUM);
    expect(data == std::vector<float>(16, 2.0F * kRanks), "the sum");
  });
}

ddp_case(what_a_rank_did_not_join_ends_with_its_name_on_all) {
  for (const int leaver : {1, 2, 3}) {
    const Folder folder;
    Procs procs(kRanks, [&](int rank, Reporter&) {
      auto group = join(folder, rank);
      group->barrier();
      if (rank == leaver) {
        sleep_ms(200);  // the others wait by now
        group.reset();
        and_goes_on(folder, rank, kRanks, options_on(Hosts::kSeveral));
        return;
      }
      const auto begin = std::chrono::steady_clock::now();
      const std::string text = expect_error(DDP_ERROR_ABORTED, [&] { group->barrier(); });
      expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5), "it took too long");
      expect_contains(text, "rank " + std::to_string(leaver) + " (");
      expect_contains(text, "left the group");
      sleep_ms(1000);  // this rank keeps its group, and must delay no other
      group.reset();
      and_goes_on(folder, rank, kRanks, options_on(Hosts::kSeveral));
    });
    expect_success(procs, 60'000);
  }
}

ddp_before_cases(if (!gloo_is_there()) std::exit(77));
