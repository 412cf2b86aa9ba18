// SPDX-License-Identifier: Apache-2.0
// Checkpoints of what libddp itself trains on GPUs: Adam, sharded or not, and averages.
#include "checkpoint/state.hpp"
#include "optim/ema.hpp"
#include "support/check.hpp"
#include "support/file_faults.hpp"
#include "support/training.hpp"

constexpr Home kHomes[] = {Home::kHost, Home::kGpu, Home::kBoth};

/// A model that trains with what libddp has, and its checkpoint.
struct Trained : Training {
  std::shared_ptr<optim::Ema> ema;

  Trained(group::Group& of, Home home, bool sharded, bool masters = false, bool commits = true)
      : Training(of, Rule::kAdamW, ways_of(home, sharded, masters)),
        ema(std::make_shared<optim::Ema>(model, std::vector<double>{0.75})) {
    model->replicas().keep_equal(optimizer);
    model->replicas().keep_equal(ema);
    if (commits) commit();
  }
  static Ways ways_of(Home home, bool sharded, bool masters) {
    Ways ways = mixed_ways(home);
    ways.owned_grads = true;
    ways.unused = DDP_UNUSED_ERROR;
    ways.shard = ways.in_backward = sharded;
    ways.master_weights = masters;
    ways.rate = 0.5;
    ways.is_committed = false;
    return ways;
  }
  /// Gradients are the same whole numbers on all ranks, so their mean is them, in whatever order it is formed.
  void backward(int number) { pass(0, number); }
  void make_step(int number) {
    backward(number);
    step();
    ema->update(stream());
  }
  [[nodiscard]] checkpoint::Parts parts() { return {*model, optimizer.get(), ema.get()}; }
  void save(const std::string& path) { checkpoint::save_file("save", parts(), {1, 2}, path, std::nullopt); }
  void load(const std::string& path, checkpoint::LoadMode mode = {}) {
    (void)checkpoint::load_file("load", parts(), path, std::nullopt, mode);
  }
};

ddp_case(real_optimizers_and_averages_come_back_on_any_number_of_ranks) {
  const TemporaryFolder folder;
  std::string wanted;
  for (const Home home : kHomes)
    for (const int size : {1, 3})
      for (const bool shard : {false, true}) {
        const FakeGpus gpus(home == Home::kBoth ? 31 : 0);
        run_gpu_groups(size, [&](group::Group& group, int) {
          Trained first(group, home, shard);
          for (int pass = 0; pass < 3; ++pass) first.make_step(pass);
          first.save(folder.file("a"));
          Trained second(group, home, shard);
          second.load(folder.file("a"));
          second.save(folder.file("b"));
          for (int pass = 3; pass < 5; ++pass) first.make_step(pass), second.make_step(pass);
          first.save(folder.file("c"));
          second.save(folder.file("d"));
          group.barrier();
        });
        expect(read_whole(folder.file("a")) == read_whole(folder.file("b")), "what was loaded is saved again");
        expect(read_whole(folder.file("c")) == read_whole(folder.file("d")), "training goes on as if nothing had happened");
        if (wanted.empty()) wanted = read_whole(folder.file("c"));
        expect(read_whole(folder.file("c")) == wanted,
               "home " + std::to_string(static_cast<int>(home)) + ", size " + std::to_string(size));
        FakeGpus::expect_clean();
      }
}

/// A load between a pass, which may have made the step, and its step.
ddp_case(a_load_after_an_unstepped_pass_is_that_of_a_new_process) {
  const TemporaryFolder folder;
  for (const Home home : kHomes)
    for (const bool shard : {false, true}) {
      const FakeGpus gpus(home == Home::kBoth ? 32 : 0);
      run_gpu_groups(2, [&](group::Group& group, int) {
        Trained old(group, home, shard, true);
        for (int pass = 0; pass < 2; ++pass) old.make_step(pass);
        old.save(folder.file("a"));
        checkpoint::save_file("save", {*old.model}, {1, 2}, folder.file("values"), std::nullopt);
        old.make_step(2);
        old.backward(3);
        old.load(folder.file("a"));
        Trained fresh(group, home, shard, true);
        fresh.load(folder.file("a"));
        for (int pass = 4; pass < 6; ++pass) old.make_step(pass), fresh.make_step(pass);
        old.save(folder.file("b"));
        fresh.save(folder.file("c"));
        // Values alone: their master weights begin anew.
        Trained other(group, home, shard, true);
        other.optimizer->set_rate(1e-5);
        other.make_step(6);
        other.backward(7);
        (void)checkpoint::load_file("load", {*other.model}, folder.file("values"), std::nullopt);
        for (const model::StateTensor& each : other.optimizer->state_tensors()) {
          const size_t dot = each.name.rfind('.');
          if (each.name.substr(dot) != ".master") continue;
          const auto k = static_cast<size_t>(std::stoi(each.name.substr(1, dot - 1)));  // "p3"
          std::string wanted(static_cast<size_t>(other.count(k)) * sizeof(float), '\0');
          const std::vector<std::byte> value = other.read(other.value(k));
          for (size_t i = 0; i < static_cast<size_t>(other.count(k)); ++i)
            set_element(DDP_F32, wanted.data(), i, get_element(other.dtype(k), value.data(), i));
          expect(other.whole(each) == wanted, "the master weights of " + each.name);
        }
        group.barrier();
      });
      expect(read_whole(folder.file("b")) == read_whole(folder.file("c")),
             "as in a new process, home " + std::to_string(static_cast<int>(home)));
      FakeGpus::expect_clean();
    }
}

ddp_case(commit_gives_what_rank_0_has_loaded_to_all) {
  const TemporaryFolder folder;
  run_on_gpus(2, [&](group::Group& group, int rank) {
    {
      Trained first(group, Home::kGpu, false);
      first.make_step(0);
      first.save(folder.file("a"));
    }
    Trained second(group, Home::kGpu, false, false, false);
    if (rank == 0) second.load(folder.file("a"), {.partial = false, .local = true});
    second.commit();
    const std::string moments = second.state();
    expect_same_everywhere(group, moments + second.optimizer->state_fields().begin()->second, "the state");
    expect(moments.find_first_not_of('\0') != std::string::npos, "and it is that of the file");
  });
}
