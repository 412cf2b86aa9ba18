// SPDX-License-Identifier: Apache-2.0
// Checkpoints of sharded optimizers: written from any number of ranks, they are the files of an ordinary optimizer, and any
// number of ranks continues from them with the same bits, sharded or not.

#include "conformance/step_bits.hpp"
#include "support/check.hpp"

ddp_case_on(kThreePaths, a_sharded_checkpoint_is_an_ordinary_one_and_loads_anywhere) {
  for (const bool masters : {false, true}) {
    Ways plain;
    plain.master_weights = masters;
    if (masters) plain.dtype = DDP_BF16;
    Ways sharded = plain;
    sharded.shard = sharded.in_backward = true;
    expect_one_file(path, {{1, plain}, {2, sharded}, {4, sharded}}, {{1, plain}, {2, sharded}, {4, sharded}, {4, plain}});
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
