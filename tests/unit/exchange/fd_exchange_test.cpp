// SPDX-License-Identifier: Apache-2.0
// Descriptors go to every rank; if one rank fails in its own part, the others learn of it at once and not at their deadline.
#include "shm/fd_exchange.hpp"

#include "control/local_hub.hpp"
#include "core/attempt.hpp"
#include "shm/mesh.hpp"
#include "support/check.hpp"
#include "support/ranks.hpp"

constexpr size_t kRanks = 2;

struct Outcome {
  std::optional<Error> problem;
  std::vector<shm::Fd> received;
  int64_t ms = 0;
};

/// `fails`: rank 1 looks for rank 0 at an address without a process.
std::array<Outcome, kRanks> swap_all(bool fails) {
  std::array<shm::FdExchange, kRanks> exchanges;
  std::vector<std::string> addresses;
  for (const shm::FdExchange& exchange : exchanges) addresses.push_back(exchange.address());
  std::array<Outcome, kRanks> outcomes;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      std::vector<std::string> mine = addresses;
      if (fails && rank == 1) mine[0] = std::string(mine[0].size(), '0');
      const shm::Fd given(dup(STDERR_FILENO));
      const int64_t begin = os::now_ns();
      outcomes[rank].problem = try_to<Error>([&] {
        outcomes[rank].received =
            exchanges[rank].swap(given.get(), static_cast<int32_t>(rank), mine, {os::Deadline::in_ms(20'000)});
      });
      outcomes[rank].ms = (os::now_ns() - begin) / 1'000'000;
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

ddp_case(every_rank_gets_every_descriptor) {
  const auto outcomes = swap_all(false);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    expect(!outcomes[rank].problem, "no error");
    for (size_t peer = 0; peer < kRanks; ++peer)
      expect((outcomes[rank].received[peer].get() >= 0) == (peer != rank), "of the others");
  }
}

ddp_case(nobody_waits_for_a_rank_that_has_failed) {
  const auto outcomes = swap_all(true);
  for (const Outcome& outcome : outcomes) {
    expect(outcome.problem.has_value(), "an error");
    expect_equal(outcome.problem->status(), DDP_ERROR_NOT_SUPPORTED, outcome.problem->text());
    expect(outcome.ms < 10'000, "known after " + std::to_string(outcome.ms) + " ms");
  }
}

ddp_case(nobody_waits_for_a_rank_that_has_failed_before_it_could_swap) {
  const auto soon = [] { return os::Deadline::in_ms(20'000); };
  run_ranks(kRanks, [&](int rank) {
    const auto control = bootstrap::join_local_hub("before", rank, kRanks, soon(), 20'000);
    shm::MemoryOffer offer(*control, nullptr);
    std::vector<std::string> offers = control->gather("offers", offer.bytes(), soon());
    if (rank == 1) offers.back().clear();  // it cannot read what came
    const int64_t begin = os::now_ns();
    const std::optional<Error> problem = try_to([&] { static_cast<void>(offer.take(offers, {soon()})); });
    const int64_t ms = (os::now_ns() - begin) / 1'000'000;
    expect(problem.has_value(), "an error");
    if (rank == 0) expect_equal(problem->status(), DDP_ERROR_NOT_SUPPORTED, problem->text());
    expect(ms < 10'000, "known after " + std::to_string(ms) + " ms");
    static_cast<void>(control->gather("end", "", soon()));
  });
}
