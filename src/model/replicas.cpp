// SPDX-License-Identifier: Apache-2.0
#include "model/replicas.hpp"

#include <algorithm>
#include <string>

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "core/hash.hpp"
#include "device/gpu/transfer.hpp"
#include "group/consensus.hpp"
#include "model/commit.hpp"
#include "model/drift.hpp"
#include "model/late_values.hpp"
#include "model/model.hpp"
#include "model/replica_source.hpp"
#include "model/replicate.hpp"
#include "model/requirements.hpp"
#include "os/log.hpp"
#include "parts/model_pass.hpp"

namespace ddp::model {
namespace {

constexpr const char* kRecover = "ddp_group_recover";
constexpr int kAttempts = 2;  // to make replicas equal

}  // namespace

void Replicas::keep_equal(std::weak_ptr<ReplicaState> state) {
  if (const std::shared_ptr<ReplicaState> alive = state.lock(); alive != nullptr && take_awaited(alive)) return;
  const std::lock_guard lock(keeping_);
  std::erase_if(kept_equal_, [](const std::weak_ptr<ReplicaState>& each) { return each.expired(); });
  kept_equal_.push_back(std::move(state));
}

/// The next state that is awaited, if there is one, goes to this object, which takes its place. An object that does not fit
/// leaves it.
bool Replicas::take_awaited(const std::shared_ptr<ReplicaState>& object) {
  std::shared_ptr<AwaitedState> awaited;
  {
    const std::lock_guard lock(keeping_);
    if (awaited_.empty()) return false;
    awaited = awaited_.front();
    awaited_.erase(awaited_.begin());  // no other thread gives it away
  }
  on_error([&] { awaited->give(*object); },
           [&](const Error&) {
             const std::lock_guard lock(keeping_);
             awaited_.insert(awaited_.begin(), awaited);
           });
  const std::lock_guard lock(keeping_);
  for (std::weak_ptr<ReplicaState>& each : kept_equal_)
    if (each.lock() == awaited) each = object;
  return true;
}

bool Replicas::awaits_objects() noexcept {
  const std::lock_guard lock(keeping_);
  return !awaited_.empty();
}

std::vector<std::shared_ptr<ReplicaState>> Replicas::kept_equal() {
  std::vector<std::shared_ptr<ReplicaState>> alive;
  const std::lock_guard lock(keeping_);
  for (const std::weak_ptr<ReplicaState>& each : kept_equal_)
    if (auto state = each.lock()) alive.push_back(std::move(state));
  return alive;
}

void Replicas::check(void* stream) {
  model_.require_ready("ddp_model_check_replicas");
  model_.group().check_idle("ddp_model_check_replicas");
  refuse_capture(model_, "ddp_model_check_replicas", stream);
  wait_values(model_);
  const bootstrap::CallState::In inside(model_.group().calls(), bootstrap::UserCall::kCheck, model_.number());
  require_everybody(model_, "ddp_model_check_replicas");
  if (const std::optional<Drift> drift = find_drift(model_.group(), model_.table(), Compare::kAll, stream))
    throw_drift("ddp_model_check_replicas", *drift);
}

/// A rank that only answers passes makes no checks, and the others none while there is one.
void Replicas::check_after_pass(void* stream) {
  const ddp_model_options& options = model_.options();
  if (options.check_every <= 0 || model_.passes().meter().passes() % options.check_every != 0 ||
      model_.passes().attendance().absent_rank() >= 0)
    return;
  const bootstrap::CallState::Answering comparing(model_.group().calls(), bootstrap::UserCall::kCheck);
  ++checks_;
  const std::optional<Drift> drift = find_drift(model_.group(), model_.table(), Compare::kParameters, stream);
  if (!drift) return;
  if (options.drift == DDP_DRIFT_REPORT) throw_drift("ddp_model_end_backward", *drift);
  model_.values().change_together(
      [&] { repair(model_.group(), "ddp_model_end_backward", model_.table(), kept_equal(), *drift, stream); });
  ++repairs_;
}

uint64_t Replicas::hash() const {
  model_.require_no_pass("ddp_model_get_hash");
  wait_values(model_);
  std::vector<Tensor> values;
  for (const Parameter& parameter : model_.table().parameters()) values.push_back(parameter.value);
  const gpu::Device* const device = gpu::device_of(values);
  if (device != nullptr) device->synchronize();
  gpu::Transfer transfer(device);
  Hasher hasher;
  for (const Parameter& parameter : model_.table().parameters()) {
    if (parameter.removed) continue;
    hasher.add(parameter.name.c_str(), parameter.name.size() + 1);
    transfer.read(parameter.value, 0, parameter.value.bytes(),
                  [&](const std::byte* data, int64_t bytes) { hasher.add(data, static_cast<size_t>(bytes)); });
  }
  return hasher.value();
}

void Replicas::fill(ddp_model_stats& stats) const noexcept {
  stats.checks = checks_;
  stats.repairs = repairs_;
}

bool Replicas::await_step() noexcept {
  const std::lock_guard lock(keeping_);
  return std::any_of(kept_equal_.begin(), kept_equal_.end(), [](const std::weak_ptr<ReplicaState>& each) {
    const auto state = each.lock();
    return state != nullptr && state->awaits_step();
  });
}

bool Replicas::took_step() noexcept {
  const std::lock_guard lock(keeping_);
  return std::any_of(kept_equal_.begin(), kept_equal_.end(), [](const std::weak_ptr<ReplicaState>& each) {
    const auto state = each.lock();
    return state != nullptr && state->took_step();
  });
}

void Replicas::leave() noexcept {
  is_new_ = false;
  final_passes_ = model_.pass().results().final_passes();
  is_whole_ = model_.values().is_whole();
  is_between_ = await_step() && took_step();
  met_.rank_before = model_.group().rank();
  met_.size_before = model_.group().size();
}

/// What every rank holds whole besides the parameters.
NamedTensors Replicas::beside_values() {
  NamedTensors all;
  all.add_buffers(model_.table());
  for (const auto& state : kept_equal()) {
    if (!state->is_replicated()) continue;
    for (const StateTensor& each : state->state_tensors()) all.add("\"" + each.name + "\" of the optimizer", each.tensor);
  }
  return all;
}

/// Of all that, and of the settings.
uint64_t Replicas::hash_rest(void* stream) {
  Hasher hasher;
  const NamedTensors all = beside_values();
  for (const uint64_t each : content_hashes(model_.group(), all.tensors, stream)) hasher.add(&each, sizeof each);
  for (const auto& state : kept_equal()) {
    if (!state->is_replicated()) continue;
    const std::string settings = settings_of(*state);
    hasher.add(settings.data(), settings.size());
  }
  return hasher.value();
}

ReplicaVersion Replicas::present(void* stream) {
  ReplicaVersion mine{is_new_, has_loaded_, is_whole_, final_passes_, 0, 0, 0, met_.rank_before, met_.size_before};
  mine.is_between = is_between_;
  mine.is_reopened = reopened_ != nullptr && reopened_->is_open();
  if (mine.is_reopened)
    mine.rest = 1 + static_cast<uint64_t>(model_.group().rank());  // what was added differs
  else if (!is_new_)
    mine.hash = hash(), mine.rest = hash_rest(stream);
  for (const auto& state : kept_equal()) mine.steps += state->steps();
  return mine;
}

std::string Replicas::version() {
  ReplicaVersion mine = present(nullptr);
  mine.rank = 0;
  return write_version(mine);
}

int32_t Replicas::make_equal(void* stream) {
  const ReplicaVersion mine = present(stream);
  std::vector<ReplicaVersion> all;
  for (const std::string& answer : model_.group().gather("replicas", write_version(mine)))
    all.push_back(read_version(answer));
  for (const ReplicaVersion& each : all) final_passes_ = std::max(final_passes_, each.final_passes);
  met_.some_reopened = std::any_of(all.begin(), all.end(), [](const ReplicaVersion& each) { return each.is_reopened; });
  const ReplicaSource found = find_source(all);
  if (found.is_recovery) await_states(found.rank, all);
  if (found.sends == ReplicaSource::Sends::kNoneIsWhole) {
    lose_parts();
    model_.values().tear();
    return -1;
  }
  // Who holds the same stays whole, so that the death of the source costs nothing.
  send(found, !are_alike(mine, all[static_cast<size_t>(found.rank)]), stream);
  is_whole_ = true;
  settle(found);
  return found.is_recovery && found.sends != ReplicaSource::Sends::kNothing ? found.rank : -1;
}

/// A new rank may commit before it makes its optimizers. The others' state is kept for these.
void Replicas::await_states(int32_t source, const std::vector<ReplicaVersion>& all) {
  group::Group& group = model_.group();
  const std::vector<std::shared_ptr<ReplicaState>> mine = kept_equal();
  std::vector<size_t> counts;
  for (const std::string& count : group.gather("states", std::to_string(mine.size()))) counts.push_back(std::stoul(count));
  const size_t wanted = counts[static_cast<size_t>(source)];
  size_t least = wanted;
  int32_t fewest = -1;  // the rank with the fewest
  for (size_t rank = 0; rank < counts.size(); ++rank)
    if (all[rank].is_new && counts[rank] < least) least = counts[rank], fewest = static_cast<int32_t>(rank);
  if (least == wanted) return;
  ByteWriter told;
  for (size_t k = least; group.rank() == source && k < wanted; ++k)
    told.text(mine[k]->is_replicated() ? AwaitedState::describe(*mine[k]) : "");
  const std::vector<std::string> by_rank = group.gather("awaited states", told.bytes());
  ByteReader theirs(by_rank[static_cast<size_t>(source)]);
  std::vector<std::string_view> states;
  while (!theirs.at_end()) states.push_back(theirs.text());
  if (std::any_of(states.begin(), states.end(), [](std::string_view each) { return each.empty(); }))
    throw Error(DDP_ERROR_MISMATCH,
                "ddp_model_commit: a new rank has fewer optimizers than the others, one of which has shard = 1; a new rank "
                "must make that before ddp_model_commit")
        .about(fewest)
        .as_agreed();
  std::vector<std::shared_ptr<AwaitedState>> made;
  group::all_or_none(group, "awaited states", [&] {
    for (size_t k = mine.size(); all[static_cast<size_t>(group.rank())].is_new && k < wanted; ++k)
      made.push_back(std::make_shared<AwaitedState>(states[k - least], model_.table()));
  });
  const std::lock_guard lock(keeping_);
  awaited_.insert(awaited_.end(), made.begin(), made.end());
  kept_equal_.insert(kept_equal_.end(), made.begin(), made.end());
}

/// What was sent is not believed to have come: a recovery looks, and sends it once more. `spoils`: this rank is not whole
/// until all has come, and the group may break before.
void Replicas::send(const ReplicaSource& found, bool spoils, void* stream) {
  if (found.sends == ReplicaSource::Sends::kNothing) return;
  if (found.sends == ReplicaSource::Sends::kAdded) return reopened_->send_added(model_, found.rank, stream);
  if (found.sends == ReplicaSource::Sends::kValues)
    return distribute_values(model_.group(), model_.table(), found.rank, stream);
  if (reopened_ != nullptr && reopened_->is_open()) reopened_->begin_added(model_, stream);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    replicate(model_.group(), is_new_ || met_.some_reopened ? "ddp_model_commit" : kRecover, values_and_buffers(),
              kept_equal(), found.rank, stream, [&] { is_whole_ = is_whole_ && !spoils; });
    if (!found.is_recovery) return;
    NamedTensors all = beside_values();
    all.add_values(model_.table());
    const std::optional<Drift> drift = find_drift(model_.group(), all, stream);
    if (!drift) return difference_.reset();
    os::log(DDP_LOG_WARNING, "%s: what rank %d has sent has not come: %s", kRecover, found.rank, drift->text.c_str());
    difference_ = Error(DDP_ERROR_MISMATCH, std::string(kRecover) + ": the replicas differ after they were made equal: " +
                                                drift->text + "; the group can go on; load a checkpoint with the optimizer")
                      .with({.ranks = drift->ranks});
  }
}

void Replicas::settle(const ReplicaSource& found) {
  if (found.sends >= ReplicaSource::Sends::kValues) model_.values().end_load({});
  if (found.is_recovery && !found.same_ranks && !met_.some_reopened) lose_parts();
  if (difference_) model_.values().tear();
}

void Replicas::lose_parts() {
  for (const auto& state : kept_equal()) {
    if (state->is_replicated()) continue;
    state->lose_parts();
    if (!state->is_initial()) model_.values().lose_optimizer();
  }
}

void Replicas::replicate_from(int32_t source, const char* function, void* stream) {
  replicate(model_.group(), function, values_and_buffers(), kept_equal(), source, stream);
}

std::vector<Tensor> Replicas::values_and_buffers() const {
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : model_.table().parameters()) tensors.push_back(parameter.value);
  for (const Buffer& buffer : model_.table().buffers()) tensors.push_back(buffer.value);
  return tensors;
}

}  // namespace ddp::model
