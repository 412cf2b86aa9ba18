// SPDX-License-Identifier: Apache-2.0
#include "model/reopened.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "device/gpu/transfer.hpp"
#include "group/consensus.hpp"
#include "group/gpu.hpp"
#include "group/recoverable.hpp"
#include "group/relayout.hpp"
#include "model/commit.hpp"
#include "model/model.hpp"
#include "model/replicas.hpp"
#include "model/requirements.hpp"
#include "parts/model_pass.hpp"

namespace ddp::model {
namespace {

constexpr const char* kReopen = "ddp_model_reopen";

void require_no_outer(Model& model) {
  for (const auto& state : model.replicas().kept_equal())
    if (std::strcmp(state->kind(), "outer") == 0)
      throw make_error(DDP_ERROR_INVALID_STATE,
                       "%s: the model has an outer optimizer, whose fragments are those parameters; destroy it with "
                       "ddp_outer_destroy first, and make another one after ddp_model_commit",
                       kReopen);
}

/// "2:w.exp_avg", by the place of the state among those of the model.
std::string name_of(size_t place, const std::string& tensor) { return std::to_string(place) + ":" + tensor; }

/// The parts of this rank, by name.
std::map<std::string, group::KeptTensor> sharded_tensors(Model& model) {
  std::map<std::string, group::KeptTensor> all;
  const auto states = model.replicas().kept_equal();
  for (size_t place = 0; place < states.size(); ++place) {
    if (states[place]->is_replicated()) continue;
    for (StateTensor& each : states[place]->state_tensors())
      all.emplace(name_of(place, each.name), group::KeptTensor{each.name, each.tensor, std::move(each.parts)});
  }
  return all;
}

/// Where the table's tensors are now; without elements: nowhere.
std::vector<group::KeptTensor> find_tensors(Model& model, const group::KeptTable& table) {
  std::map<std::string, group::KeptTensor> now = sharded_tensors(model);
  std::vector<group::KeptTensor> tensors;
  for (const group::KeptItem& item : table.items) {
    const auto found = now.find(item.name);
    tensors.push_back(found == now.end() ? group::KeptTensor{} : std::move(found->second));
    if (found != now.end() && (tensors.back().tensor.dtype != item.dtype || tensors.back().tensor.count != item.count))
      throw make_error(DDP_ERROR_MISMATCH, "ddp_model_commit: \"%s\" of an optimizer has another dtype or size than before",
                       item.name.c_str());
  }
  return tensors;
}

}  // namespace

Reopened::Reopened(Model& model)
    : parameters_(model.table().parameter_count()),
      buffers_(model.table().buffers().size()),
      gradients_(model.pass().results().gradients()),
      went_alone_(model.pass().results().went_alone()),
      weight_(model.passes().attendance().weight()),
      accumulated_(model.pass().accumulated()) {
  group::Group& group = model.group();
  if (model.replicas().awaits_objects())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: %s has joined and has not made all optimizers and averages of the other ranks; make them first",
                     kReopen, group.name_of(group.rank()).c_str());
  if (has_gpu_tensors(model.table())) group.gpu().device().synchronize();
  std::vector<group::KeptTensor> tensors;
  for (const auto& state : model.replicas().kept_equal()) {
    if (state->is_replicated()) continue;
    for (StateTensor& each : state->state_tensors()) {
      owners_.push_back({state, each.name});
      tensors.push_back({each.name, each.tensor, std::move(each.parts)});
      table_.items.push_back(group::item_of(tensors.back()));
    }
  }
  table_.ranks = group.size();
  part_ = {{0, static_cast<int64_t>(model.number())}, group.size(), group.rank(), true};
  const std::vector<group::KeptPiece> pieces = group::pieces_of(table_.items, group.size(), group.rank());
  bytes_.resize(static_cast<size_t>(group::end_of(pieces)));
  gpu::Transfer copies(group::device_of(tensors));
  for (const group::KeptPiece& piece : pieces)
    copies.read_to(tensors[piece.item].tensor, piece.held, piece.bytes, bytes_.data() + piece.at);
}

void Reopened::begin(Model& model, void* stream) {
  group::Group& group = model.group();
  Replicas& replicas = model.replicas();
  if (replicas.reopened() != nullptr && !model.is_committed()) {
    if (replicas.reopened()->is_open())
      throw make_error(DDP_ERROR_INVALID_STATE, "%s: the model is building already; call ddp_model_commit", kReopen);
    return replicas.reopened()->open(model);  // the others have: the group broke before this rank had the answer
  }
  model.require_ready(kReopen);
  model.values().require_own(kReopen);
  group.check_idle(kReopen);
  refuse_capture(model, kReopen, stream);
  require_no_outer(model);
  const bootstrap::CallState::In inside(group.calls(), bootstrap::UserCall::kReopen, model.number());
  require_everybody(model, kReopen);
  on_error<Error>(
      [&] { group::all_or_none(group, "reopen", [&] { replicas.set_reopened(std::make_unique<Reopened>(model)); }); },
      [&](const Error& error) {
        if (!breaks_group(error.status())) replicas.set_reopened(nullptr);
      });
  replicas.reopened()->open(model);
}

void Reopened::open(Model& model) {
  group::or_break(model.group(), group::Part::kOwn, [&] {
    if (model.is_committed()) {
      parts::ModelPass& pass = model.passes();
      if (pass.results().take_torn()) model.values().tear();
      pass.parts().leave_group(model.replicas().await_step());
      model.replicas().leave();
    }
    model.replicas().forget_load();
    for (const auto& state : model.replicas().kept_equal()) state->reopen();
    model.passes_ = {};
    model.rejoin_.reset();
    model.buckets_.clear();
    group::Recoverable::of(model.group()).forget_kept();
    is_open_ = true;
  });
}

void Reopened::remove_parameter(Model& model, int32_t index) {
  model.require_building("ddp_model_remove_parameter");
  if (!model.buckets().empty())
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_remove_parameter: it comes after ddp_model_set_buckets, which names all parameters");
  model.table_.remove_parameter(index);
}

void Reopened::remove_buffer(Model& model, int32_t index) {
  model.require_building("ddp_model_remove_buffer");
  model.table_.remove_buffer(index);
}

void Reopened::send_added(Model& model, int32_t source, void* stream) const {
  std::vector<Tensor> tensors;
  const Parameters& table = model.table();
  for (int32_t index = parameters_; index < table.parameter_count(); ++index)
    tensors.push_back(table.parameter(index).value);
  for (size_t index = buffers_; index < table.buffers().size(); ++index) tensors.push_back(table.buffers()[index].value);
  distribute(model.group(), tensors, source, stream);
  begin_added(model, stream);
}

void Reopened::begin_added(Model& model, void* stream) const {
  std::vector<int32_t> added;
  for (const int32_t index : model.table().present())
    if (index >= parameters_) added.push_back(index);
  group::or_break(model.group(), group::Part::kOwn, [&] {
    for (const auto& state : model.replicas().kept_equal()) state->begin_added(added, stream);
  });
}

void Reopened::finish(Model& model) {
  if (!model.replicas().some_reopened()) return model.replicas().set_reopened(nullptr);  // what broke off is over
  move_parts(model);
  const Reopened* const mine = model.replicas().reopened();
  if (mine != nullptr && mine->is_open()) mine->go_on(model);
  model.replicas().set_reopened(nullptr);
}

group::Holdings Reopened::holdings() const {
  group::Holdings mine;
  if (is_open_ && !table_.items.empty()) mine.parts.push_back(part_);
  return mine;
}

std::string Reopened::describe(Model& model) const {
  std::set<std::string> stayed;
  for (const int32_t index : model.table().present())
    if (index < parameters_) stayed.insert(model.table().parameter(index).name);
  const auto states = model.replicas().kept_equal();
  group::KeptTable table = table_;
  for (size_t item = 0; item < owners_.size(); ++item) {
    const Owner& owner = owners_[item];
    const auto place = std::find(states.begin(), states.end(), owner.state.lock());
    const bool is_wanted = place != states.end() && stayed.count(owner.name.substr(0, owner.name.rfind('.'))) != 0;
    table.items[item].name = is_wanted ? name_of(static_cast<size_t>(place - states.begin()), owner.name) : "";
  }
  return group::write_table(table);
}

/// Nothing if no rank has parts.
void Reopened::move_parts(Model& model) {
  group::Group& group = model.group();
  const Reopened* const mine = model.replicas().reopened();
  std::vector<group::Holdings> by_rank;
  for (const std::string& told :
       group.gather("reopened state", group::write_holdings(mine != nullptr ? mine->holdings() : group::Holdings())))
    by_rank.push_back(group::read_holdings(told));
  if (std::all_of(by_rank.begin(), by_rank.end(), [](const group::Holdings& each) { return each.parts.empty(); })) return;
  const auto states = model.replicas().kept_equal();
  for (const auto& state : states)
    if (!state->is_replicated()) state->lose_parts();  // of a commit that did not end
  const std::optional<group::Found> found = group::find_generation(by_rank);
  if (!found) {
    for (const auto& state : states)
      if (!state->is_replicated() && !state->is_initial()) model.values().lose_optimizer();
    return;
  }
  const int32_t teller = found->givers[0];
  const std::string told =
      group.gather("reopened table", group.rank() == teller ? mine->describe(model) : "")[static_cast<size_t>(teller)];
  const group::KeptTable table = group::read_table(told);
  std::vector<group::KeptTensor> tensors;
  std::optional<gpu::Transfer> copies;
  group::all_or_none(group, "reopened tensors", [&] {
    tensors = find_tensors(model, table);
    copies.emplace(group::device_of(tensors));
  });
  static_cast<void>(group::give_parts(
      group, table, found->givers, [&](int32_t) { return mine->bytes_.data(); }, tensors, *copies));
}

/// What the passes before have left to those that come.
void Reopened::go_on(Model& model) const {
  using State = pass::Results::Gradients;
  parts::ModelPass& pass = model.passes();
  pass.results().set(gradients_ == State::kAccumulated ? State::kAccumulated : State::kOwn);
  if (went_alone_) pass.results().go_alone();
  pass.attendance().set_weight(weight_);
  for (const int32_t index : accumulated_)
    if (!model.table().parameter(index).removed) pass.accumulate(index);
}

}  // namespace ddp::model
