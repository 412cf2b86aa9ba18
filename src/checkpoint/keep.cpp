// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/keep.hpp"

#include <algorithm>
#include <utility>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "group/recovery.hpp"
#include "model/requirements.hpp"

namespace ddp::checkpoint {
namespace {

void require_keepable(const char* function, model::Model& model, void* stream) {
  model.require_ready(function);
  model.values().require_whole(function);
  model.values().require_own(function);
  model::refuse_capture(model, function, stream);
  if (!model::is_between_steps(model))
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: parts of a batch have begun; end it with DDP_PASS_REDUCE first",
                     function);
  if (model.group().size() > 1 && model.pass().results().went_alone())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the ranks have made steps on their own (DDP_PASS_LOCAL) and may differ; save a checkpoint instead",
                     function);
}

}  // namespace

void keep(const char* function, const std::vector<model::Model*>& models, const Counters& counters, std::string own,
          void* stream, const std::optional<Error>& refusal) {
  group::Group& group = models.front()->group();
  group.check_idle(function);
  group::Survival* const survival = group::Recovery::survival(group);
  if (survival == nullptr)
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "%s: the group was made without the option recoverable = 1, so no recovery would use what is kept; save "
        "a checkpoint instead",
        function);
  const bootstrap::CallState::In inside(group.calls(), bootstrap::user_call(function));
  for (model::Model* const model : models) model::require_everybody(*model, function);
  const group::Keeper::Followers all = survival->followers();
  group::Keeper::Followers kept;
  std::optional<Error> problem = refusal;
  for (model::Model* const model : models) {
    if (!problem) problem = try_to([&] { require_keepable(function, *model, stream); });
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each->is_of(model); });
    if (found != all.end()) kept.push_back(*found);
  }
  survival->keeper().keep(group, kept, all, {counters.epoch, counters.step, {}, std::move(own)}, problem);
}

}  // namespace ddp::checkpoint
