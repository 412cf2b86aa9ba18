// SPDX-License-Identifier: Apache-2.0
// What the ranks hold after a recovery is the same bits, of all that a replica is: buffers and the optimizer's state too,
// also where the parameters agree. A transfer that fails is found, and the half-done work of a dead rank is never taken
// for whole.

#include "support/check.hpp"
#include "support/trained_rank.hpp"

/// The state of an optimizer of the program: each look finds it elsewhere, if `moves`, so no transferred value stays.
class OwnState final : public model::ReplicaState {
 public:
  explicit OwnState(bool moves) : moves_(moves) {
    if (moves_) memory_[0] = {7, 8, 9};  // neither of the two is what another rank has
  }
  const char* kind() const noexcept override { return "own"; }
  std::vector<model::StateTensor> state_tensors() override {
    if (moves_) at_ = 1 - at_;
    return {{"weight.trace", flat_tensor(memory_[at_].data(), DDP_F32, 3)}};
  }
  std::map<std::string, std::string> state_fields() const override { return {}; }
  void load_fields(const std::map<std::string, std::string>&) override {}

 private:
  const bool moves_;
  size_t at_ = 0;
  std::vector<float> memory_[2] = {{1, 2, 3}, {4, 5, 6}};
};

void on_two_of_three(const std::function<std::string(TrainedRank&)>& body, const std::string& expected) {
  const Folder folder;
  Procs procs(3, [&](int number, Reporter&) {
    TrainedRank rank(folder, number, 3);
    return body(rank);
  });
  const std::vector<ProcResult> results = procs.wait(30'000);
  for (size_t rank = 0; rank < 2; ++rank)
    expect(results[rank].text.find(expected) != std::string::npos, results[rank].describe() + "\nis not: " + expected);
}

std::string text_of(int32_t source, const float* values) {
  return "source " + std::to_string(source) + ": " + std::to_string(values[0]) + " " + std::to_string(values[1]);
}

ddp_case(equal_replicas_send_nothing) {
  on_two_of_three([](TrainedRank& rank) { return text_of(rank.recover(), rank.mean.data()); },
                  "source -1: 7.000000 8.000000");
}

ddp_case(unequal_buffers_are_made_equal) {
  on_two_of_three(
      [](TrainedRank& rank) {
        rank.mean[1] += static_cast<float>(rank.rank);
        return text_of(rank.recover(), rank.mean.data());
      },
      "source 0: 7.000000 8.000000");
}

ddp_case(unequal_state_of_the_optimizer_is_made_equal) {
  on_two_of_three(
      [](TrainedRank& rank) {
        rank.momentum()[1] += static_cast<float>(rank.rank);
        return text_of(rank.recover(), rank.momentum());
      },
      "source 0: 1.500000 1.500000");
}

ddp_case(an_unequal_rate_is_made_equal) {
  on_two_of_three(
      [](TrainedRank& rank) {
        rank.sgd->set_rate(0.25 + rank.rank);
        static_cast<void>(rank.recover());
        return "rate " + std::to_string(rank.sgd->rate());
      },
      "rate 0.250000");
}

ddp_case(what_does_not_come_over_is_found) {
  on_two_of_three(
      [](TrainedRank& rank) {
        const auto own = std::make_shared<OwnState>(rank.rank == 1);
        rank.model->replicas().keep_equal(own);
        const std::optional<Error> found = try_to([&] { static_cast<void>(rank.recover()); });
        rank.group->barrier();  // the group continues
        const std::optional<Error> refused = try_to([&] { rank.model->begin_backward(DDP_PASS_REDUCE); });
        return (found ? found->text() : "nothing") + " | " + (refused ? refused->text() : "used");
      },
      "differ after they were made equal: \"weight.trace\" of the optimizer differs between rank 0 and "
      "rank 1; the group can go on; load a checkpoint with the optimizer | ddp_model_begin_backward: a "
      "pass or a load that failed has changed only a part");
}

constexpr int64_t kLarge = int64_t{3} << 20;

/// Kills rank 2 when its slice of the first parameter has begun to change in the memory of this rank.
class Killer {
 public:
  Killer(const volatile float* slice, pid_t victim)
      : thread_([this, slice, victim, before = *slice] {
          while (!stops_ && *slice == before) {
          }
          if (!stops_) kill(victim, SIGKILL);
        }) {}
  ~Killer() {
    stops_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

std::string shard_and_be_killed(const Folder& folder, int number) {
  const TrainedRank rank(folder, number, 3, kLarge, true);
  int64_t pids[3] = {}, mine = getpid();
  rank.group->all_gather(flat_tensor(&mine, DDP_I64, 1), flat_tensor(pids, DDP_I64, 3));
  const float* const values = rank.values();
  {
    std::optional<Killer> killer;
    if (number == 0) killer.emplace(values + kLarge - kLarge / 3 + 100, static_cast<pid_t>(pids[2]));
    while (!try_to([&] { rank.step(); })) {
    }
  }
  static_cast<void>(group::Recovery::run(*rank.group, group::RecoveryRule()));
  const std::optional<Error> refused = try_to([&] { rank.model->begin_backward(DDP_PASS_REDUCE); });
  if (!refused) return "goes on with a part of the state";
  if (refused->text().find("part of the parameters") != std::string::npos) return "torn";
  for (int64_t i = 0; i < kLarge; ++i)
    if (values[i] != values[0]) return "mixed: " + std::to_string(values[0]) + " and " + std::to_string(values[i]);
  return "whole";
}

/// The ranks write their slices into each other's memory, and one dies in the middle of that.
ddp_case(parameters_given_in_part_are_torn) {
  for (int i = 0; i < 3; ++i) {
    const Folder folder;
    Procs procs(3, [&](int rank, Reporter&) { return shard_and_be_killed(folder, rank); });
    std::vector<ProcResult> results = procs.wait(40'000);
    results.pop_back();
    for (const ProcResult& result : results)
      expect(result.exit_code == 0 && (result.text == "torn" || result.text == "whole"), result.describe());
  }
}
