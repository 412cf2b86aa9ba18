// SPDX-License-Identifier: Apache-2.0
// All ranks do their part, or all throw the same.
#include "control/consensus.hpp"

#include <new>

#include "control/local_hub.hpp"
#include "support/check.hpp"
#include "support/ranks.hpp"

constexpr int kRanks = 3;
constexpr int64_t kLimitMs = 20'000;

/// `body(rank)` in all_or_none on three ranks; `then(given, problem)` on each, in a group that still lives.
template <class Body, class Then>
void on_all(const std::string& name, Body&& body, Then&& then) {
  run_ranks(kRanks, [&](int rank) {
    const auto control = bootstrap::join_local_hub(name, rank, kRanks, os::Deadline::in_ms(kLimitMs), kLimitMs);
    std::vector<std::string> given;
    const std::optional<Error> problem = try_to([&] {
      given = bootstrap::all_or_none(*control, "step", os::Deadline::in_ms(kLimitMs), [&] { return body(rank); });
    });
    then(given, problem);
    const auto next = control->gather("next", "", os::Deadline::in_ms(kLimitMs));
    expect_equal(next.size(), size_t{kRanks}, "the group lives");
  });
}

ddp_case(all_get_what_all_bodies_gave) {
  on_all(
      "gave", [](int rank) { return std::string(static_cast<size_t>(rank), 'x'); },
      [](const std::vector<std::string>& given, const std::optional<Error>& problem) {
        expect(!problem, "no problem");
        expect(given == std::vector<std::string>{"", "x", "xx"}, "by rank");
      });
}

ddp_case(the_error_of_the_first_rank_is_that_of_all) {
  const auto fail = [](int rank) {
    if (rank > 0) throw make_error(DDP_ERROR_IO, "rank %d", rank);
  };
  on_all("first", fail, [](const std::vector<std::string>&, const std::optional<Error>& problem) {
    expect(problem && problem->is_agreed(), "agreed");
    expect_equal(problem->status(), DDP_ERROR_IO, "status");
    expect_equal(problem->text(), std::string("rank 1"), "text");
  });
}

ddp_case(a_lack_of_memory_comes_before_other_errors) {
  const auto fail = [](int rank) {
    if (rank == 0) throw Error(DDP_ERROR_IO, "what came of it");
    if (rank == 2) throw std::bad_alloc();
  };
  on_all("memory", fail, [](const std::vector<std::string>&, const std::optional<Error>& problem) {
    expect(problem && problem->is_agreed(), "agreed");
    expect_equal(problem->status(), DDP_ERROR_OUT_OF_MEMORY, "status");
    expect(problem->culprit() == 2 && problem->text().rfind("rank 2 (", 0) == 0, "it says whose: " + problem->text());
  });
}
