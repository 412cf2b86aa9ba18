// SPDX-License-Identifier: Apache-2.0
// Several hosts with several ranks each: one named cause on all ranks, and no survivor that dies or hangs, when a rank is
// killed, late, or makes another call. Skipped with a printed reason when the Gloo module is not there.

#include "support/check.hpp"
#include "support/group_world.hpp"
#include "support/host_world.hpp"

ddp_case(a_killed_rank_is_named_by_all_and_takes_nobody_with_it) {
  std::mt19937 random(static_cast<unsigned>(getpid()));
  const Placement placement = "aaabb";  // rank 2 owns no rail
  for (int victim = 0; victim < 5; ++victim) {
    const int64_t count = victim % 2 == 0 ? 256 : 2'000'000;
    Run run(placement, [&](ForkHub& hub, int rank, Reporter& report) {
      Child child(hub, placement, rank);
      return reduce_until_it_fails(child, count, report);
    });
    const pid_t pid = run.procs.pid(victim);
    for (int rank = 0; rank < 5; ++rank) run.procs.wait_for(rank, "running");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));  // a random moment
    run.procs.signal(victim, SIGKILL);
    const auto results = run.procs.wait();
    for (int rank = 0; rank < 5; ++rank) {
      if (rank == victim) continue;
      const ProcResult& result = results[static_cast<size_t>(rank)];
      expect(result.exit_code == 0 && !result.timed_out, "rank " + std::to_string(rank) + ": " + result.describe());
      expect_contains(result.text, "DDP_ERROR_PEER_FAILED: rank " + std::to_string(victim) + " (host testhost, pid " +
                                       std::to_string(pid) + ")");
    }
  }
}

ddp_case(a_rank_that_does_not_come_is_named_by_all) {
  const Placement placement = "aabb";
  for (int late = 0; late < 4; ++late) {
    Run run(placement, [&](ForkHub& hub, int rank, Reporter&) {
      Child child(hub, placement, rank, 800);
      child->barrier();
      if (rank == late) wait_until([&] { return child.failure().broken(); });
      return expect_error(DDP_ERROR_TIMED_OUT, [&] {
        std::vector<float> data(100'000, 1.0F);
        child->all_reduce(flat_tensor(data.data(), DDP_F32, 100'000), DDP_SUM);
      });
    });
    for (const auto& result : run.procs.wait()) {
      expect(result.exit_code == 0 && !result.timed_out, result.describe());
      expect_contains(result.text, "rank " + std::to_string(late) + " (host testhost");
      // Its host notices it first, or, on a machine that is busy, the rank that waits for it on the rail.
      const bool by_its_host = result.text.find("did not join all-reduce") != std::string::npos;
      expect(by_its_host || result.text.find("did not take part in all-reduce") != std::string::npos, result.text);
    }
  }
}

void expect_mismatch(const Placement& placement, int other, const std::function<void(Child&, bool)>& call) {
  Run run(placement, [&](ForkHub& hub, int rank, Reporter&) {
    Child child(hub, placement, rank);
    return expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] {
      child->barrier();  // a later act of the others may cut its goodbye off
      call(child, rank == other);
    });
  });
  for (const auto& result : run.procs.wait()) {
    expect(result.exit_code == 0 && !result.timed_out, result.describe());
    expect_contains(result.text, "different calls");
  }
}

ddp_case(different_calls_are_a_mismatch_inside_a_host_and_between_hosts) {
  for (const Placement placement : {"aabb", "aaab", "abb"})
    for (const int other : {0, 1, ranks_of(placement) - 1})
      for (const int64_t count : {10, 100'000}) {
        expect_mismatch(placement, other, [&](Child& child, bool differs) {
          std::vector<float> data(static_cast<size_t>(count) + 1);
          child->all_reduce(flat_tensor(data.data(), DDP_F32, count + (differs ? 1 : 0)), DDP_SUM);
        });
        expect_mismatch(placement, other, [&](Child& child, bool differs) {
          std::vector<float> data(static_cast<size_t>(count));
          const Tensor tensor = flat_tensor(data.data(), DDP_F32, count);
          differs ? child->broadcast(tensor, 0) : child->all_reduce(tensor, DDP_SUM);
        });
      }
}

ddp_before_cases(need_gloo());
