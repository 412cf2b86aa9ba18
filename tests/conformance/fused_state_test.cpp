// SPDX-License-Identifier: Apache-2.0
// Checkpoints of sharded optimizers: written from any number of ranks, they are the files of an ordinary optimizer, and any
// number of ranks continues from them with the same bits, sharded or not.

#include "checkpoint/state.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

/// Gradients that do not depend on the rank, so that the mean is the same on any number of ranks (counts that are powers of
/// two).
void step_alone(Training& world, int step) { world.train(0, step); }

Ways ways_of(bool shard, bool masters) {
  Ways ways;
  ways.shard = shard;
  ways.in_backward = shard;
  ways.master_weights = masters;
  if (masters) ways.dtype = DDP_BF16;
  return ways;
}

ddp_case_on(kThreePaths, a_sharded_checkpoint_is_an_ordinary_one_and_loads_anywhere) {
  for (const bool masters : {false, true}) {
    const Folder folder;
    const std::string file = folder.path() + "/model";
    const auto write = [&](int size, bool shard) {
      run_on(path, size, [&](group::Group& group, int) {
        Training world(group, Rule::kAdamW, ways_of(shard, masters));
        for (int step = 0; step < 3; ++step) step_alone(world, step);
        checkpoint::save_file("save", {*world.model, world.optimizer.get()}, {3, 7},
                              file + std::to_string(size) + (shard ? "s" : "o"), std::nullopt);
      });
    };
    write(1, false);
    write(4, true);
    write(2, true);
    const std::string wanted = read_file(file + "1o");
    expect(wanted.size() > 100'000, "the file is there");
    expect(read_file(file + "4s") == wanted && read_file(file + "2s") == wanted, "the same file, whoever wrote it");

    const auto go_on = [&](int size, bool shard) {
      const std::string result = folder.path() + "/result";
      run_on(path, size, [&](group::Group& group, int rank) {
        Training world(group, Rule::kAdamW, ways_of(shard, masters));
        const checkpoint::Counters counters =
            checkpoint::load_file("load", {*world.model, world.optimizer.get()}, file + "4s", std::nullopt);
        expect(counters.epoch == 3 && counters.step == 7, "counters");
        expect_equal(world.optimizer->step_count(), int64_t{3}, "steps");
        for (int step = 3; step < 5; ++step) step_alone(world, step);
        expect_same_everywhere(group, world.bytes(), "the model");
        if (rank == 0) std::ofstream(result, std::ios::binary) << world.bytes();
      });
      return read_file(result);
    };
    const std::string ordinary = go_on(1, false);
    expect(!ordinary.empty(), "a result");
    expect(go_on(2, true) == ordinary && go_on(4, true) == ordinary && go_on(4, false) == ordinary,
           "the same bits after loading");
  }
}

ddp_ranks_case(run_groups, a_sharded_optimizer_has_no_state_before_commit, 2) {
  ddp_model_options model_options{.first_bucket_bytes = 1000, .bucket_bytes = 1000};
  const auto model =
      std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), model_options);
  std::vector<float> value(3);
  model->add_parameter("w", flat_tensor(value.data(), DDP_F32, 3), nullptr);
  AdamOptions options;
  options.shard = 1;
  const auto optimizer = std::make_shared<optim::Adam>(model, options, options);
  model->optimizer_slot().attach(optimizer);
  expect_error(DDP_ERROR_INVALID_STATE, [&] { (void)optimizer->state_tensors(); }, {"ddp_model_commit"});
  model->commit();
  expect_equal(optimizer->state_tensors().size(), size_t{2}, "tensors");
}
