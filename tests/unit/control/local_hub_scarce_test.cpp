// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads, and a process whose memory runs out at any request during an exchange: no rank waits, and no rank
// gets an answer that another one has not sent.
#include <atomic>
#include <barrier>
#include <memory>
#include <string>

#include "control/local_hub.hpp"
#include "core/attempt.hpp"
#include "os/clock.hpp"
#include "support/check.hpp"
#include "support/ranks.hpp"
#include "support/scarce.hpp"

namespace {

using ddp::Error;
using ddp::bootstrap::Control;
using ddp::os::Deadline;
using ddp::test::expect;
using ddp::test::expect_equal;
using ddp::test::run_ranks;

constexpr int kRanks = 3;
constexpr int64_t kLimitMs = 20'000;

struct Round {
  std::atomic<int> answered{0}, failed{0}, wrong{0};
  std::atomic<int64_t> asked{0};
};

// The n-th request from the moment in which all have met is refused; after that all is there again.
void exchange(int64_t n, Round& round) {
  std::barrier<> together(kRanks);
  run_ranks(kRanks, [&](int rank) {
    std::unique_ptr<Control> control =
        ddp::bootstrap::join_local_hub("scarce", rank, kRanks, Deadline::in_ms(kLimitMs), kLimitMs);
    const std::string mine(100, static_cast<char>('a' + rank));
    together.arrive_and_wait();
    if (rank == 0) ddp::test::scarce::arm({.first = n});
    together.arrive_and_wait();
    std::vector<std::string> all;
    const std::optional<Error> error =
        ddp::try_to([&] { all = control->gather("a gather", mine, Deadline::in_ms(kLimitMs)); });
    if (error.has_value()) control->abort(*error);  // as a group does
    together.arrive_and_wait();
    if (rank == 0) round.asked = ddp::test::scarce::disarm();
    together.arrive_and_wait();
    ++(error.has_value() ? round.failed : round.answered);
    for (int from = 0; !error.has_value() && from < kRanks; ++from)
      if (all.at(static_cast<size_t>(from)) != std::string(100, static_cast<char>('a' + from))) ++round.wrong;
  });
}

void no_rank_waits_when_memory_runs_out(void**) {
  const int64_t begin_ns = ddp::os::now_ns();
  int failed = 0;
  for (int64_t n = 1;; ++n) {
    Round round;
    exchange(n, round);
    expect_equal(round.wrong.load(), 0, "answers that are wrong, request " + std::to_string(n));
    expect_equal(round.answered + round.failed, kRanks, "ranks that are back");
    if (round.failed != 0) ++failed;
    if (round.asked < n) break;
  }
  expect(failed > 10, "some requests were needed");
  expect(ddp::os::now_ns() - begin_ns < 2 * kLimitMs * 1'000'000, "no rank waited for its limit of time");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(no_rank_waits_when_memory_runs_out),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
