// SPDX-License-Identifier: Apache-2.0
#include "device/updates.hpp"

#include <algorithm>
#include <cstring>

#include "core/dtype.hpp"

namespace ddp::device {
namespace {

constexpr size_t kRemembered = 16;  // rules that a new one is compared with; more kinds than that are noted more than once

template <class Rule>
int64_t position_of(std::vector<Rule>& rules, const Rule& rule) {
  const size_t oldest = rules.size() > kRemembered ? rules.size() - kRemembered : 0;
  for (size_t at = rules.size(); at > oldest; --at)
    // Bytes between members: at worst a rule is noted twice. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    if (std::memcmp(&rules[at - 1], &rule, sizeof rule) == 0) return static_cast<int64_t>(at - 1);
  rules.push_back(rule);
  return static_cast<int64_t>(rules.size()) - 1;
}

bool goes_on(const void* before, int64_t bytes, const void* after) noexcept {
  return before == nullptr ? after == nullptr : static_cast<const std::byte*>(before) + bytes == after;
}

/// Does `next` begin where `last` ends, in every array?
bool follows(const Update& last, const Update& next, ddp_dtype dtype) noexcept {
  const int64_t bytes = last.count * dtype_size(dtype);
  const int64_t state_bytes = last.count * dtype_size(dtype == DDP_F64 ? DDP_F64 : DDP_F32);
  return last.rule == next.rule && goes_on(last.value, bytes, next.value) && goes_on(last.grad, bytes, next.grad) &&
         goes_on(last.state[0], state_bytes, next.state[0]) && goes_on(last.state[1], state_bytes, next.state[1]) &&
         goes_on(last.master, state_bytes, next.master);
}

}  // namespace

template <class Rule>
void RuleUpdates<Rule>::reserve(const Parameters& table) {
  std::array<size_t, kDtypes> counts{};
  for (const Parameter& parameter : table.parameters())
    if (!of(parameter.value).is_immediate()) ++counts[parameter.value.dtype];
  for (size_t dtype = 0; dtype < kDtypes; ++dtype) {
    lists_[dtype].updates.reserve(counts[dtype]);
    lists_[dtype].rules.reserve(counts[dtype]);
  }
}

template <class Rule>
void RuleUpdates<Rule>::clear() noexcept {
  for (List& list : lists_) {
    list.updates.clear();
    list.rules.clear();
  }
}

template <class Rule>
bool RuleUpdates<Rule>::empty() const noexcept {
  return std::all_of(lists_.begin(), lists_.end(), [](const List& list) { return list.updates.empty(); });
}

template <class Rule>
void RuleUpdates<Rule>::add(const Device& device, ddp_dtype dtype, Update update, const Rule& rule, const GradShape& shape) {
  if (update.count == 0) return;
  if (device.is_immediate()) {
    update.rule = 0;
    return device.update(UpdateSpan<Rule>{&update, 1, &rule, 1, dtype}, shape, Order{});
  }
  List& list = lists_[dtype];
  if (planned_.rules == nullptr) update.rule = position_of(list.rules, rule);
  if (!list.updates.empty() && follows(list.updates.back(), update, dtype))
    list.updates.back().count += update.count;
  else
    list.updates.push_back(update);
}

template <class Rule>
void RuleUpdates<Rule>::launch(const Device& device, const GradShape& shape, const Order& order) {
  const struct Forget {
    RuleUpdates& noted;
    ~Forget() { noted.clear(); }
  } forget{*this};
  for (size_t dtype = 0; dtype < kDtypes; ++dtype)
    if (const List& list = lists_[dtype]; !list.updates.empty())
      device.update(UpdateSpan<Rule>{list.updates.data(), std::ssize(list.updates), list.rules.data(),
                                     planned_.rules != nullptr ? planned_.count : std::ssize(list.rules),
                                     static_cast<ddp_dtype>(dtype), planned_.rules},
                    shape, order);
}

template class RuleUpdates<AdamRule>;
template class RuleUpdates<SgdRule>;

}  // namespace ddp::device
