// SPDX-License-Identifier: Apache-2.0
#include "parts/step/late_values.hpp"

#include <algorithm>
#include <utility>

#include "core/attempt.hpp"
#include "group/consensus.hpp"
#include "group/group.hpp"
#include "group/value_lane.hpp"

namespace ddp::parts {

LateValues::LateValues(const group::Channel& channel, const Parameters& table, const Plan& plan)
    : channel_(channel), plan_(plan), gathers_(plan.size()), buckets_(table.parameters().size()) {
  for (size_t b = 0; b < plan.size(); ++b)
    for (const PlannedPiece& piece : plan[b].pieces) {
      std::vector<size_t>& of = buckets_[static_cast<size_t>(piece.parameter)];
      if (of.empty() || of.back() != b) of.push_back(b);
    }
  if (GuardedValues::are_wanted()) guard_ = std::make_unique<GuardedValues>(table, plan);
}

LateValues::~LateValues() { static_cast<void>(settle()); }

/// The transport is prepared while the lane is idle, because gathers of other models use it too.
void LateValues::prepare(size_t bucket, collective::ExchangeSpec gather) {
  group::Group& group = channel_.group();
  group::ValueLane::open(group);
  group::or_break(group, group::Part::kExchange, [&] {
    group::ValueLane& lane = group.channels().values();
    lane.await_turn();
    gather.work = {};  // the step was made before
    if (guard_ != nullptr) guard_->divert(bucket, gather);
    gathers_[bucket].operation = lane.transport().prepare(gather);
    gathers_[bucket].header.used.resize(gather.used_words());
  });
}

void LateValues::post(const BlockUpdate& update) {
  failed_ = nullptr;
  for (size_t b = 0; b < gathers_.size(); ++b) {
    std::vector<uint64_t>& used = gathers_[b].header.used;
    std::fill(used.begin(), used.end(), 0);
    for (size_t k = 0; k < plan_[b].pieces.size(); ++k)
      if (update.takes_part(plan_[b].pieces[k].parameter)) used[k / 64] |= uint64_t{1} << (k % 64);
  }
  if (guard_ != nullptr) guard_->close([&](int32_t index) { return update.takes_part(index); });
  for (size_t b = gathers_.size(); b-- > 0;)
    gathers_[b].request = channel_.group().channels().values().post([this, b] { run(gathers_[b]); });
}

void LateValues::run(Gather& gather) {
  group::Group& group = channel_.group();
  group::or_break(group, group::Part::kCall, "ddp_optimizer_step", [&] {
    if (group.health().has_fault()) group.health().check_no_fault();
    group::or_break(group, group::Part::kExchange, [&] {
      gather.operation->start(gather.header);
      gather.operation->finish();
    });
  });
}

void LateValues::wait_for(size_t bucket) {
  group::RequestPtr& request = gathers_[bucket].request;
  if (request == nullptr) return;
  on_error([&] { channel_.group().channels().values().wait(*request); },
           [&](const Error&) {
             failed_ = request;
             if (guard_ != nullptr) guard_->give_up();
           });
}

/// Values that have come are lost where a guard has given up before they were copied.
void LateValues::require_copies() const {
  if (guard_ != nullptr && failed_ != nullptr) static_cast<void>(failed_->test());
}

void LateValues::wait(int32_t index) {
  const std::vector<size_t>& buckets = buckets_[static_cast<size_t>(index)];
  for (const size_t bucket : buckets) wait_for(bucket);
  require_copies();
  if (guard_ != nullptr) guard_->open(index);
}

void LateValues::wait_all() {
  for (size_t b = gathers_.size(); b-- > 0;) wait_for(b);
  if (guard_ != nullptr) guard_->open_all();
  for (Gather& each : gathers_) each.request.reset();
}

bool LateValues::is_ready(int32_t index) {
  for (const size_t bucket : buckets_[static_cast<size_t>(index)])
    if (const group::RequestPtr& request = gathers_[bucket].request; request != nullptr && !request->test()) return false;
  require_copies();
  if (guard_ != nullptr) guard_->open(index);
  return true;
}

bool LateValues::settle() noexcept {
  for (size_t b = gathers_.size(); b-- > 0;) static_cast<void>(try_to([&] { wait_for(b); }));
  if (guard_ != nullptr) failed_ != nullptr ? guard_->give_up() : guard_->open_all();
  for (Gather& each : gathers_) each.request.reset();
  return std::exchange(failed_, nullptr) == nullptr;
}

}  // namespace ddp::parts
