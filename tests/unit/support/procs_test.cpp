// SPDX-License-Identifier: Apache-2.0
// The forking helper and the thread helper must themselves be right: they decide what other tests see.
#include "support/procs.hpp"

#include "support/check.hpp"
#include "support/ranks.hpp"

ddp_case(results_come_back_by_rank) {
  Procs procs(3, [](int rank, Reporter&) { return "I am " + std::to_string(rank); });
  const auto results = procs.wait();
  for (int rank = 0; rank < 3; ++rank) {
    const auto& result = results[static_cast<size_t>(rank)];
    expect_equal(result.exit_code, 0, "exit code");
    expect_equal(result.text, "I am " + std::to_string(rank), "text");
  }
}

ddp_case(a_thrown_error_is_exit_code_1_with_its_status) {
  Procs procs(1, [](int, Reporter&) -> std::string { throw ddp::make_error(DDP_ERROR_IO, "no disk"); });
  const auto results = procs.wait();
  expect_equal(results[0].exit_code, 1, "exit code");
  expect_equal(results[0].text, std::string("DDP_ERROR_IO: no disk"), "text");
}

ddp_case(a_child_can_be_awaited_and_killed) {
  Procs procs(1, [](int, Reporter& report) -> std::string {
    report.say("ready");
    for (;;) pause();
  });
  procs.wait_for(0, "ready");
  procs.signal(0, SIGKILL);
  expect_equal(procs.wait_one(0).signal, SIGKILL, "signal");
}

ddp_case(a_child_that_hangs_is_killed_and_marked) {
  Procs procs(1, [](int, Reporter&) -> std::string {
    for (;;) pause();
  });
  expect(procs.wait(50)[0].timed_out, "marked as timed out");
}

ddp_case(long_texts_come_back_whole) {
  Procs procs(1, [](int, Reporter&) { return std::string(1'000'000, 'x'); });
  expect_equal(procs.wait()[0].text.size(), size_t{1'000'000}, "length");
}

ddp_case(threads_rethrow_the_first_failure_after_all_are_back) {
  std::atomic<int> back{0};
  std::string text;
  try {
    run_ranks(4, [&](int rank) {
      ++back;
      if (rank == 2) throw std::runtime_error("rank two");
    });
  } catch (const std::runtime_error& error) {
    text = error.what();
  }
  expect_equal(back.load(), 4, "ranks that came back");
  expect_contains(text, "rank two");
}
