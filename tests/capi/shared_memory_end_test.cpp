// SPDX-License-Identifier: Apache-2.0
// Memory of ddp_group_share when the group ends, breaks and recovers.

#include "support/check.hpp"
#include "support/shared_floats.hpp"

ddp_case(destroying_the_group_makes_memory_private) {
  in_processes(2, 30'000, [](ddp_group* group, int rank) {
    Floats floats;
    floats.fill(rank, 1);
    OK(ddp_group_share(group, floats.data, floats.bytes()));
    const ddp_tensor tensor = floats.tensor();
    OK(ddp_group_all_reduce(group, &tensor, DDP_SUM, nullptr));
    const std::vector<float> sum(floats.data, floats.data + kCount);
    ddp_group* next = nullptr;
    OK(ddp_group_split(group, 0, rank, nullptr, &next));
    expect_status(DDP_ERROR_NOT_SUPPORTED, ddp_group_share(next, floats.data, floats.bytes()), "shared with its parent");
    ddp_group_destroy(group);
    expect(same(floats.data, sum.data(), kCount), "the contents stay");
    OK(ddp_group_share(next, floats.data, floats.bytes()));
    OK(ddp_group_all_reduce(next, &tensor, DDP_AVERAGE, nullptr));
    ddp_group_destroy(next);
    expect(same(floats.data, sum.data(), kCount), "the mean of equal values");
  });
}

ddp_status sum(ddp_group* group, const ddp_tensor& tensor, bool posted) {
  if (!posted) return ddp_group_all_reduce(group, &tensor, DDP_SUM, nullptr);
  ddp_request* request = nullptr;
  ddp_status status = ddp_group_post_all_reduce(group, &tensor, DDP_SUM, &request, nullptr);
  if (status == DDP_OK) status = ddp_request_wait(request, -1, nullptr);
  ddp_request_destroy(request);
  return status;
}

/// The call of one thread ends while that of another finds the group broken, and makes the memory private.
ddp_case(a_call_that_succeeds_has_its_result) {
  int trial = 0;
  const auto race = [&](ddp_group* group, int rank) {
    constexpr int64_t kMany = int64_t{1} << 22;
    Floats floats(16, kMany), mine(16, kMany), expected(16, kMany);
    for (int other = 0; other < 2; ++other) {
      mine.fill(other, 0);
      for (int64_t i = 0; i < kMany; ++i) expected.data[i] = (other == 0 ? 0 : expected.data[i]) + mine.data[i];
    }
    mine.fill(rank, 0);
    OK(ddp_group_share(group, floats.data, floats.bytes()));
    (void)ddp_group_barrier(group);  // the abort may be first
    std::thread other;
    if (rank == 0)
      other = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(500 + 700 * trial));
        ddp_group_abort(group, "on purpose");
        (void)ddp_group_barrier(group);
      });
    const ddp_tensor tensor = floats.tensor();
    bool is_right = true;
    while (is_right) {
      std::memcpy(floats.data, mine.data, static_cast<size_t>(floats.bytes()));
      if (sum(group, tensor, trial % 2 == 1) != DDP_OK) break;
      is_right = same(floats.data, expected.data, kMany);
    }
    if (other.joinable()) other.join();
    expect(is_right, "an all-reduce that ended with DDP_OK, trial " + std::to_string(trial));
  };
  for (; trial < 20; ++trial) in_processes(2, 30'000, race);
}

ddp_case(a_recovered_group_shares_it_again) {
  const Folder folder;
  Procs procs(3, [&](int rank, Reporter& report) {
    ddp_group_options options = patient_options(rank, 3);
    options.recoverable = 1;
    ddp_group* const group = create_group("file://" + folder.path() + "/meet", options);
    Floats floats(16 + rank), plain(0);
    const ddp_tensor tensor = floats.tensor(), plain_tensor = plain.tensor();
    OK(ddp_group_share(group, floats.data, floats.bytes()));
    const auto compare = [&](int round) {
      floats.fill(rank, round), plain.fill(rank, round);
      const ddp_status status = ddp_group_all_reduce(group, &tensor, DDP_AVERAGE, nullptr);
      if (status != DDP_OK) return status;
      OK(ddp_group_all_reduce(group, &plain_tensor, DDP_AVERAGE, nullptr));
      expect(same(floats.data, plain.data, kCount), "round " + std::to_string(round));
      return status;
    };
    OK(compare(0));
    report.say("works");
    if (rank == 2) pause();
    int round = 1;
    while (compare(round) == DDP_OK) ++round;
    floats.fill(rank, 77), plain.fill(rank, 77);
    auto rule = defaults<ddp_recover_options>();
    OK(ddp_group_recover(group, &rule, nullptr));
    expect(same(floats.data, plain.data, kCount), "a recovery changes nothing of it");
    for (round = 100; round < 103; ++round) OK(compare(round));
    expect_status(DDP_ERROR_INVALID_ARGUMENT, ddp_group_share(group, floats.data, floats.bytes()), "it is shared again");
    OK(ddp_group_unshare(group, floats.data));
    OK(compare(200));
    ddp_group_destroy(group);
  });
  for (int rank = 0; rank < 3; ++rank) procs.wait_for(rank, "works");
  procs.signal(2, SIGKILL);
  const std::vector<ProcResult> results = procs.wait(60'000);
  for (int rank = 0; rank < 2; ++rank)
    expect(results[static_cast<size_t>(rank)].exit_code == 0, results[static_cast<size_t>(rank)].describe());
}
