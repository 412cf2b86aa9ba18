// SPDX-License-Identifier: Apache-2.0
#include "model/pulled.hpp"

#include "control/call_state.hpp"
#include "model/model.hpp"
#include "parts/model_pass.hpp"

namespace ddp::model {
namespace {

void require_pulled(const Model& model, const char* function) {
  model.require_live(function);
  if (model.hook().kind != parts::Hook::Kind::kPulled)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the model's buckets are not pulled; call ddp_model_set_pulled_hook before ddp_model_commit",
                     function);
}

}  // namespace

std::shared_ptr<parts::HookBucket> next_bucket(Model& model, bool rest) {
  require_pulled(model, "ddp_model_next_bucket");
  const bootstrap::CallState::In inside(model.group().calls(), bootstrap::UserCall::kNextBucket);
  return model.passes().next_bucket(rest);
}

void finish_bucket(Model& model, const std::optional<Error>& problem) {
  require_pulled(model, "ddp_model_finish_bucket");
  const bootstrap::CallState::In inside(model.group().calls(), bootstrap::UserCall::kFinishBucket);
  model.passes().finish_bucket(problem);
}

}  // namespace ddp::model
