// SPDX-License-Identifier: Apache-2.0
// A training with virtual ranks that loses half of its eight ranks, then one more, perhaps another, and ends with the
// weights, averages and running statistics of one rank that lost no other. Ranks die in the middle of a part, between parts,
// in the pass that reduces, between it and the step, before buffers are sent; of their own SIGKILL at that moment.

#include "support/check.hpp"
#include "support/parts_training.hpp"

constexpr int64_t kSteps = 10;

void expect_the_bits(Hosts hosts, const PartsWay& way, const Deaths& deaths) {
  if (hosts != Hosts::kShared && !gloo_is_there()) return;
  const std::string wanted = undisturbed<PartsTraining>(kParts, kSteps, way, Death{-1, Moment::kNever});
  const Folder folder;
  Procs procs(kParts, [&](int rank, Reporter& report) {
    if (hosts == Hosts::kSeveral) setenv("DDP_TEST_HOST", std::to_string(rank / 3).c_str(), 1);
    ddp_group_options options = patient_options(rank, kParts);
    options.backend = options_on(hosts).backend;
    options.recoverable = 1;
    options.virtual_ranks = kParts;
    options.dead_after_ms = 2'000;
    ddp_group* const group = create_group("file://" + folder.path() + "/meet", options);
    const auto found = deaths.find(rank);
    std::string result;
    {
      PartsTraining training(group, way, found == deaths.end() ? Death{-1, Moment::kNever} : found->second);
      result = survive(group, training, kSteps, report);
    }
    ddp_group_destroy(group);
    return result;
  });
  int rank = 0;
  for (const ProcResult& result : procs.wait(60'000)) {
    const std::string name = std::string(way.name) + ", rank " + std::to_string(rank) + ": ";
    if (deaths.count(rank) != 0) {
      expect(result.signal == SIGKILL, name + "did not die: " + result.describe() + "\n" + result.said);
    } else {
      expect(result.exit_code == 0, name + result.describe() + "\n" + result.said);
      expect(result.text == wanted, name + result.text + "\n instead of " + wanted + "\n" + result.said);
    }
    ++rank;
  }
}

/// Rank 0 stays. When the fifth one dies, each of the four that are left has two parts. The last death is seen by ranks that
/// wait for buffers, with the others.
const Deaths kOthersDie = {{1, {3, Moment::kInLastPart}},  {3, {3, Moment::kBehindPass}},
                           {4, {3, Moment::kBehindStep}},  {6, {3, Moment::kInFirstPart}},
                           {2, {6, Moment::kInFirstPart}}, {5, {kBufferStep, Moment::kSendingBuffers}}};
/// Rank 0 dies in a step that is repeated: what it knows of the running statistics of part 0 are those of before, which
/// all have. The last one that dies is the one that sends them.
const Deaths kRankZeroDies = {{0, {3, Moment::kInFirstPart}},  {2, {3, Moment::kInLastPart}},
                              {5, {3, Moment::kBehindPass}},   {7, {3, Moment::kInFirstPart}},
                              {1, {6, Moment::kBetweenParts}}, {3, {kBufferStep, Moment::kSendingBuffers}}};

void half_of_the_ranks_die_and_one_more(Hosts hosts, const PartsWay& way, const Deaths& deaths) {
  expect_the_bits(hosts, way, deaths);
}

ddp_case_of(half_of_the_ranks_die_and_one_more(Hosts::kShared, kMomentumWay, kOthersDie));
ddp_case_of(half_of_the_ranks_die_and_one_more(Hosts::kShared, kAdamWay, kOthersDie));
ddp_case_of(half_of_the_ranks_die_and_one_more(Hosts::kShared, kAdamWay, kRankZeroDies));
ddp_case_of(half_of_the_ranks_die_and_one_more(Hosts::kShared, kInBackwardWay, kOthersDie));
ddp_case_of(half_of_the_ranks_die_and_one_more(Hosts::kShared, kInBackwardWay, kRankZeroDies));
ddp_case_of(half_of_the_ranks_die_and_one_more(Hosts::kGloo, kAdamWay, kRankZeroDies));
ddp_case_of(half_of_the_ranks_die_and_one_more(Hosts::kGloo, kInBackwardWay, kOthersDie));
ddp_case_of(half_of_the_ranks_die_and_one_more(Hosts::kSeveral, kAdamWay, kOthersDie));
ddp_case_of(half_of_the_ranks_die_and_one_more(Hosts::kSeveral, kInBackwardWay, kRankZeroDies));
