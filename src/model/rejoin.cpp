// SPDX-License-Identifier: Apache-2.0
#include "model/rejoin.hpp"

#include <algorithm>
#include <utility>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "model/late_values.hpp"
#include "model/model.hpp"
#include "model/replicas.hpp"
#include "model/replicate.hpp"
#include "model/requirements.hpp"
#include "parts/model_pass.hpp"

namespace ddp::model {

std::shared_ptr<Rejoin> Rejoin::follow(Model& model) {
  if (model.group().options().recoverable == 0) return nullptr;
  auto made = std::make_shared<Rejoin>(model);
  group::Recoverable::of(model.group()).follow(made);
  return made;
}

// A pass that is open ends as it must in a broken group: what its optimizer has changed is taken back.
void Rejoin::stop() noexcept {
  if (!model_.is_committed()) return;
  was_committed_ = true;
  end_values(model_);
  if (model_.pass().is_open()) static_cast<void>(try_to([this] { model_.pass().end(); }));
  model_.pass().leave_open();
  model_.passes().parts().leave_group(model_.replicas().await_step());
  model_.replicas().leave();
  static_cast<void>(try_to([this] {
    for (const auto& state : model_.replicas().kept_equal()) state->give_parameters_back();
  }));
}

void Rejoin::leave_group() noexcept { model_.passes_ = {}; }

int32_t Rejoin::rejoin_group() {
  const bootstrap::CallState::In inside(model_.group().calls(), bootstrap::UserCall::kCommit);
  const int32_t source = model_.join_group(nullptr);
  has_committed_ = has_committed_ || !was_committed_;
  return source;
}

void Rejoin::note_commit() {
  on_error([this] { group::Recoverable::of(model_.group()).note_commit(model_.group()); },
           [this](const Error&) { has_committed_ = true; });  // a recovery does the rest
}

int64_t Rejoin::steps() {
  int64_t least = -1;
  for (const auto& state : model_.replicas().kept_equal())
    if (const int64_t steps = state->optimizer_steps(); steps >= 0) least = least < 0 ? steps : std::min(least, steps);
  return least;
}

bool Rejoin::is_whole() const noexcept { return model_.values().is_whole(); }

std::optional<Error> Rejoin::take_problem() noexcept { return model_.replicas().take_difference(); }

std::string Rejoin::version() {
  if (!model_.is_committed() || !model_.values().is_whole() || has_gpu_tensors(model_.table())) return {};
  return model_.replicas().version();
}

std::vector<group::KeptTensor> Rejoin::kept_tensors() {
  std::vector<group::KeptTensor> tensors;
  for (const Parameter& parameter : model_.table().parameters())
    if (!parameter.removed) tensors.push_back({parameter.name, parameter.value});
  for (const Buffer& buffer : model_.table().buffers())
    if (!buffer.removed) tensors.push_back({buffer.name, buffer.value});
  int number = 0;
  for (const auto& state : model_.replicas().kept_equal()) {
    const std::string start = std::to_string(number++) + ":";
    for (StateTensor& each : state->state_tensors())
      tensors.push_back({start + each.name, each.tensor, std::move(each.parts)});
  }
  return tensors;
}

std::string Rejoin::kept_fields() {
  ByteWriter writer;
  for (const auto& state : model_.replicas().kept_equal()) writer.text(state->kind()).text(settings_of(*state));
  return std::move(writer).bytes();
}

void Rejoin::begin_back() noexcept { static_cast<void>(model_.values().begin_load(true)); }

void Rejoin::end_back(const std::string& fields) {
  ByteReader reader(fields);
  for (const auto& state : model_.replicas().kept_equal()) {
    const std::string kind(reader.text());
    if (kind != state->kind())
      throw Error(DDP_ERROR_MISMATCH, "the state of " + kind + " was kept, and there is " + state->kind());
    load_settings(*state, reader.text());
  }
  model_.values().end_load({});
}

bool Rejoin::take_commit() noexcept { return std::exchange(has_committed_, false) && model_.is_committed(); }

}  // namespace ddp::model
