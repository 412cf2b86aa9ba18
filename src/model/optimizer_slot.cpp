// SPDX-License-Identifier: Apache-2.0
#include "model/optimizer_slot.hpp"

#include "group/consensus.hpp"
#include "model/model.hpp"

namespace ddp::model {

void OptimizerSlot::attach(const std::shared_ptr<parts::BlockUpdate>& update) {
  model_.require_no_pass("ddp_optimizer_create");
  if (update->request().sharded && model_.options().uneven_inputs != 0)
    throw Error(DDP_ERROR_NOT_SUPPORTED,
                "ddp_optimizer_create: with shard = 1 every rank owns a part of every step, so none may join (uneven_inputs "
                "= 1); leave uneven_inputs 0, "
                "take part with ddp_model_skip_backward, or end all ranks together with ddp_model_set_last_pass");
  if (!update_.expired())
    throw Error(DDP_ERROR_INVALID_STATE,
                "the model has an optimizer with shard, in_backward or divide_in_step already; destroy it before another "
                "one is made");
  update_ = update;
  if (model_.is_committed()) model_.pass().attach(update_);
}

parts::OptimizerStage* OptimizerSlot::stage_of(const parts::BlockUpdate& update) const noexcept {
  parts::OptimizerStage* const stage = model_.is_committed() ? model_.pass().stage() : nullptr;
  return stage != nullptr && &stage->update() == &update ? stage : nullptr;
}

bool OptimizerSlot::is_sharded() const noexcept {
  const std::shared_ptr<parts::BlockUpdate> update = update_.lock();
  return model_.is_committed() && update != nullptr && update->request().sharded;
}

void OptimizerSlot::run_step(const parts::BlockUpdate& update, void* stream) {
  parts::OptimizerStage* const stage = stage_of(update);
  if (stage == nullptr) throw make_error(DDP_ERROR_INTERNAL, "a step of an optimizer that is not attached");
  model_.pass().meter().add([&] {
    group::or_break(model_.group(), group::Part::kExchange, [&] {
      if (const std::optional<Error> failure = stage->run_step("ddp_optimizer_step", stage->is_sharded(), stream))
        throw Error(*failure);
    });
  });
}

}  // namespace ddp::model
