// SPDX-License-Identifier: Apache-2.0
// One rank of a group that can recover, with a model and an optimizer that have made two steps in which every gradient
// was 1.
#pragma once

#include "core/attempt.hpp"
#include "group/recovery.hpp"
#include "model/model.hpp"
#include "model/optimizer_slot.hpp"
#include "model/replicas.hpp"
#include "optim/sgd.hpp"
#include "parts/model_pass.hpp"
#include "support/group_procs.hpp"
#include "support/values.hpp"

namespace ddp::test {

/// One rank and its objects.
struct TrainedRank {
  TrainedRank(const Folder& folder, int its_rank, int size, int64_t parameters = 5, bool sharded = false)
      : weight(static_cast<size_t>(parameters), 1.0F) {
    ddp_group_options options = world_options();
    options.recoverable = 1;
    rank = its_rank;
    options.dead_after_ms = 1'000;
    group = join_process_group(folder, rank, size, options);
    ddp_model_options model_options{.first_bucket_bytes = 1 << 20, .own_values = sharded ? 1 : 0};
    model = std::make_shared<model::Model>(group, model_options);
    model->add_parameter("weight", flat_tensor(weight.data(), DDP_F32, parameters), nullptr);
    model->add_buffer("mean", flat_tensor(mean.data(), DDP_F32, 3));
    ddp_optimizer_options shared = optim::default_optimizer_options();
    shared.shard = shared.in_backward = sharded ? 1 : 0;
    ddp_sgd_options rule = optim::default_sgd_options();
    rule.rate = 0.5;
    rule.momentum = 0.5;
    sgd = std::make_shared<optim::Sgd>(model, rule, shared);
    if (sgd->in_passes() != nullptr)
      model->optimizer_slot().attach(std::shared_ptr<parts::BlockUpdate>(sgd, sgd->in_passes()));
    model->replicas().keep_equal(sgd);
    model->commit();
    step();
    step();
    group->barrier();
  }

  [[nodiscard]] float* values() const { return reinterpret_cast<float*>(model->table().parameter(0).value.data); }
  [[nodiscard]] float* momentum() const { return reinterpret_cast<float*>(sgd->state_tensors().front().tensor.data); }

  void step() const {
    model->begin_backward(DDP_PASS_REDUCE);
    const Tensor& grad = model->table().parameter(0).grad;
    std::fill_n(reinterpret_cast<float*>(grad.data), grad.count, 1.0F);
    model->pass().mark_ready(0);
    model->end_backward();
    sgd->step();
  }

  /// Until the group has broken.
  void wait_for_death() const {
    while (!try_to([&] { group->barrier(); })) {
    }
  }
  /// The last rank is killed. Gives the source.
  int32_t recover() const {
    if (rank == group->size() - 1) std::raise(SIGKILL);
    wait_for_death();
    return group::Recovery::run(*group, group::RecoveryRule()).source;
  }

  int rank = 0;
  std::vector<float> weight, mean = {7, 8, 9};
  std::shared_ptr<group::Group> group;
  std::shared_ptr<model::Model> model;
  std::shared_ptr<optim::Sgd> sgd;
};

}  // namespace ddp::test
