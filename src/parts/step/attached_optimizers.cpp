// SPDX-License-Identifier: Apache-2.0
#include "parts/step/attached_optimizers.hpp"

#include "core/attempt.hpp"

namespace ddp::parts {

void AttachedOptimizers::attach(std::weak_ptr<BlockUpdate> update, std::string name, std::vector<size_t> buckets,
                                std::unique_ptr<OptimizerStage> stage) {
  all_.push_back(Attached{std::move(update), std::move(name), std::move(buckets), std::move(stage)});
  find_places();
}

/// Of two that had a bucket one after the other, the later one has it.
void AttachedOptimizers::find_places() noexcept {
  std::fill(places_.begin(), places_.end(), Place{});
  for (const Attached& each : all_)
    for (size_t k = 0; k < each.buckets.size(); ++k) places_[each.buckets[k]] = Place{each.stage.get(), k, each.is_active};
}

OptimizerStage* AttachedOptimizers::stage_of(const BlockUpdate& update) const noexcept {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Attached& each) {
    return !each.update.expired() && &each.stage->update() == &update;
  });
  return found == all_.end() ? nullptr : found->stage.get();
}

OptimizerStage* AttachedOptimizers::stage_of(int32_t parameter) const noexcept {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Attached& each) {
    return !each.update.expired() && each.stage->update().parameters().has(parameter);
  });
  return found == all_.end() ? nullptr : found->stage.get();
}

pass::Traits AttachedOptimizers::traits() const noexcept {
  pass::Traits traits;
  for (const Attached& each : all_) {
    const std::shared_ptr<BlockUpdate> update = each.update.lock();
    if (update == nullptr) continue;
    const StepRequest request = update->request();
    traits.calls_program = traits.calls_program || update->may_fail();
    traits.steps = traits.steps || request.in_pass();
    traits.shards = traits.shards || request.sharded;
  }
  return traits;
}

void AttachedOptimizers::require(ddp_pass mode, pass::Role role) const {
  if (mode == DDP_PASS_ACCUMULATE || role == pass::Role::kJoined) return;
  for (const Attached& each : all_)
    if (!each.update.expired() && each.stage->step_is_made())
      throw make_error(DDP_ERROR_INVALID_STATE,
                       "ddp_model_begin_backward: %s, which has in_backward, has updated in the last pass already; call "
                       "ddp_optimizer_step of each optimizer after every REDUCE pass",
                       each.name.c_str());
}

void AttachedOptimizers::begin(pass::Opening& opening) {
  const auto gone = std::remove_if(all_.begin(), all_.end(), [](const Attached& each) { return each.update.expired(); });
  all_.erase(gone, all_.end());
  on_error(
      [&] {
        for (Attached& each : all_) begin(each, opening);
      },
      [this](const Error&) { release(); });
  find_places();
}

/// A rank that has joined gets the state of the others in the end.
void AttachedOptimizers::begin(Attached& each, const pass::Opening& opening) {
  each.held = each.update.lock();
  each.is_active = each.held != nullptr && opening.mode == DDP_PASS_REDUCE && opening.role != pass::Role::kJoined;
  if (each.is_active) each.stage->begin();
}

void AttachedOptimizers::release() noexcept {
  for (Attached& each : all_) each.held.reset();
}

collective::BucketOperation& AttachedOptimizers::choose(size_t bucket, collective::BucketOperation& usual) noexcept {
  const Place& place = places_[bucket];
  return place.is_active ? place.stage->reduction(place.bucket, usual) : usual;
}

void AttachedOptimizers::started(size_t bucket, collective::BucketOperation& reduction, collective::ProgressQueue& queue) {
  const Place& place = places_[bucket];
  if (place.is_active) place.stage->follow(place.bucket, reduction, queue);
}

pass::Left AttachedOptimizers::left(size_t bucket) const noexcept {
  const Place& place = places_[bucket];
  if (!place.is_active) return {};
  return {place.stage->reduces_to_slices(), place.stage->leaves_sum(place.bucket)};
}

void AttachedOptimizers::order() {
  for (const Attached& each : all_)
    if (each.is_active) each.stage->join_updates();
}

/// What may fail with the group comes before the first step counts.
bool AttachedOptimizers::conclude(const pass::Verdict& verdict) {
  bool is_whole = true;
  for (const Attached& each : all_)
    if (each.is_active) is_whole = each.stage->end(verdict.is_void) && is_whole;
  for (const Attached& each : all_)
    if (each.is_active) each.stage->count();
  return is_whole;
}

bool AttachedOptimizers::answer(const pass::Verdict& verdict) {
  bool good = true;
  for (const Attached& each : all_) good = each.stage->attend(verdict.is_void) && good;
  return good;
}

/// Each failure is taken, also if another one is reported.
void AttachedOptimizers::report() {
  std::optional<Error> first;
  for (const Attached& each : all_) {
    if (!each.is_active) continue;
    const std::optional<Error> failure = each.stage->take_failure();
    if (failure && !first) first = failure;
  }
  if (first) throw Error(*first);
}

void AttachedOptimizers::broken() {
  std::optional<Error> first;
  for (const Attached& each : all_) {
    if (!each.is_active) continue;
    const std::optional<Error> error = try_to([&] { each.stage->give_up(); });
    if (error && !first) first = error;
  }
  if (first) throw Error(*first);
}

void AttachedOptimizers::await_values() {
  each_late([](LateValues& late) { late.wait_all(); });
}

void AttachedOptimizers::changed(pass::Change what) noexcept {
  for (const Attached& each : all_) {
    if (what == pass::Change::kGradientsZeroed || what == pass::Change::kGradientsScaled) each.stage->forget_norm();
    if (what == pass::Change::kStep || what == pass::Change::kLoad) static_cast<void>(each.stage->take_made_step());
  }
}

bool AttachedOptimizers::set_address(size_t bucket, int32_t piece, std::byte* data) noexcept {
  const Place& place = places_[bucket];
  return place.stage == nullptr || place.stage->set_address(place.bucket, piece, data);
}

}  // namespace ddp::parts
