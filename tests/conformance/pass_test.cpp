// SPDX-License-Identifier: Apache-2.0
// The pass: every promise of conformance/pass_semantics.hpp on every transport, and the reports that other ranks get when a
// rank is killed or stopped.
#include <signal.h>

#include "conformance/pass_semantics.hpp"
#include "control/control.hpp"
#include "support/suite.hpp"

using namespace ddp;
using namespace ddp::test;

namespace {

ddp_group_options options_of(ddp_backend backend) {
  ddp_group_options options = world_options();
  options.backend = backend;
  return options;
}

/// Rank 1 of 4 gets `number` in the middle of training; the others must name it.
void hit_rank_1(ddp_backend backend, int number, ddp_status status, double limit_seconds) {
  const Folder folder;
  ddp_group_options options = options_of(backend);
  options.heartbeat_ms = 50;
  options.dead_after_ms = number == SIGSTOP ? 600 : 10'000;
  Procs procs(4, [&](int rank, Reporter& report) {
    const auto group = join_process_group(folder, rank, 4, options);
    PassWorld world(*group, Memory::kOwned);
    try {
      for (int pass = 0;; ++pass) {
        world.model->begin_backward(DDP_PASS_REDUCE);
        for (size_t p = kShapes.size(); p-- > 0;) world.model->pass().mark_ready(static_cast<int32_t>(p));
        world.model->end_backward();
        if (pass == 5) report.say("training");
      }
    } catch (const Error& error) {
      if (error.status() != status) throw;
      expect_contains(error.text(), "rank 1");
      const std::string again = expect_error(status, [&] { group->barrier(); });
      expect(again == error.text(), "the first cause is repeated");
      return error.text();
    }
  });
  for (int rank = 0; rank < 4; ++rank) procs.wait_for(rank, "training");
  const int64_t hit = os::now_ns();
  procs.signal(1, number);
  std::string text;
  for (const int rank : {0, 2, 3}) {
    const ProcResult& result = procs.wait_one(rank);
    expect(result.exit_code == 0, "rank " + std::to_string(rank) + ": " + result.describe());
    expect(text.empty() || text == result.text, "the same cause on all ranks: " + text + " / " + result.text);
    text = result.text;
  }
  const double seconds = static_cast<double>(os::now_ns() - hit) * 1e-9;
  expect(seconds < limit_seconds, "told within " + std::to_string(seconds) + " s");
  if (number == SIGSTOP) procs.signal(1, SIGKILL);
}

void a_killed_rank_is_named_over_shared_memory(void**) {
  for (int i = 0; i < 5; ++i) hit_rank_1(DDP_BACKEND_SHM, SIGKILL, DDP_ERROR_PEER_FAILED, 1.0 + 2.0);
}
void a_killed_rank_is_named_over_gloo(void**) {
  if (!has_gloo()) return;
  for (int i = 0; i < 5; ++i) hit_rank_1(DDP_BACKEND_GLOO, SIGKILL, DDP_ERROR_PEER_FAILED, 1.0 + 2.0);
}
void a_stopped_rank_is_named_over_shared_memory(void**) { hit_rank_1(DDP_BACKEND_SHM, SIGSTOP, DDP_ERROR_PEER_FAILED, 5.0); }

void the_process_makes_a_new_group_after_a_failure(void**) {
  const Folder folder;
  Procs procs(3, [&](int rank, Reporter& report) {
    {
      const auto group = join_process_group(folder, rank, 3, options_of(DDP_BACKEND_AUTO));
      report.say("first");
      if (rank == 2) {
        for (;;) pause();
      }
      (void)expect_error(DDP_ERROR_PEER_FAILED, [&] { group->barrier(); });
    }
    ddp_group_options options = options_of(DDP_BACKEND_AUTO);
    options.rank = rank;
    options.world_size = 2;
    const auto group = group::Group::create(("file://" + folder.path() + "/again").c_str(), options);
    PassWorld world(*group, Memory::kOwned);
    for (int pass = 0; pass < 10; ++pass) {
      world.fill(rank, pass);
      world.model->begin_backward(DDP_PASS_REDUCE);
      for (size_t p = 0; p < kShapes.size(); ++p) world.model->pass().mark_ready(static_cast<int32_t>(p));
      world.model->end_backward();
      world.expect_mean(2, pass, "after the failure");
    }
    group->barrier();
    return std::string("trained on");
  });
  for (int rank = 0; rank < 3; ++rank) procs.wait_for(rank, "first");
  procs.signal(2, SIGKILL);
  for (const int rank : {0, 1}) {
    const ProcResult& result = procs.wait_one(rank);
    expect(result.text == "trained on", result.describe());
  }
}

}  // namespace

int main(int argc, char** argv) {
  Suite suite(argc, argv);
  suite.promises(kPassSemantics);
  suite.alone({ddp_named(a_killed_rank_is_named_over_shared_memory), ddp_named(a_killed_rank_is_named_over_gloo),
               ddp_named(a_stopped_rank_is_named_over_shared_memory),
               ddp_named(the_process_makes_a_new_group_after_a_failure)});
  return suite.run();
}
