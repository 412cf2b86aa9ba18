#include "optim/gpu_updates.hpp"

#include <algorithm>
#include <cstring>

#include "core/dtype.hpp"

namespace ddp::optim {
namespace {

constexpr size_t kRemembered = 16;  // rules that a new one is compared with; more kinds than that are noted more than once

template <class Rule>
int64_t position_of(std::vector<Rule>& rules, const Rule& rule) {
  const size_t oldest = rules.size() > kRemembered ? rules.size() - kRemembered : 0;
  for (size_t at = rules.size(); at > oldest; --at)
    if (std::memcmp(&rules[at - 1], &rule, sizeof rule) == 0) return static_cast<int64_t>(at - 1);
  rules.push_back(rule);
  return static_cast<int64_t>(rules.size()) - 1;
}

bool goes_on(const void* before, int64_t bytes, const void* after) noexcept {
  return before == nullptr ? after == nullptr : static_cast<const std::byte*>(before) + bytes == after;
}

/// Does `next` begin where `last` ends, in every array?
bool follows(const ddp_gpu_update& last, const ddp_gpu_update& next, ddp_dtype dtype) noexcept {
  const int64_t bytes = last.count * dtype_size(dtype);
  const int64_t state_bytes = last.count * dtype_size(cpu::moment_dtype(dtype));
  return last.rule == next.rule && goes_on(last.value, bytes, next.value) && goes_on(last.grad, bytes, next.grad) &&
         goes_on(last.state[0], state_bytes, next.state[0]) && goes_on(last.state[1], state_bytes, next.state[1]) &&
         goes_on(last.master, state_bytes, next.master);
}

int32_t call(const ddp_gpu_table& table, const std::vector<ddp_gpu_update>& updates,
             const std::vector<ddp_gpu_adam_rule>& rules, ddp_dtype dtype, const ddp_gpu_shape& shape, ddp_gpu_stop stop,
             void* stream) {
  return table.adam(updates.data(), static_cast<int64_t>(updates.size()), rules.data(), static_cast<int64_t>(rules.size()),
                    dtype, &shape, stop, stream);
}

int32_t call(const ddp_gpu_table& table, const std::vector<ddp_gpu_update>& updates,
             const std::vector<ddp_gpu_sgd_rule>& rules, ddp_dtype dtype, const ddp_gpu_shape& shape, ddp_gpu_stop stop,
             void* stream) {
  return table.sgd(updates.data(), static_cast<int64_t>(updates.size()), rules.data(), static_cast<int64_t>(rules.size()),
                   dtype, &shape, stop, stream);
}

}  // namespace

template <class Rule>
void RuleUpdates<Rule>::reserve(const Parameters& table) {
  std::array<size_t, kDtypes> counts{};
  for (const Parameter& parameter : table.parameters())
    if (parameter.value.is_on_gpu()) ++counts[parameter.value.dtype];
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
void RuleUpdates<Rule>::add(ddp_dtype dtype, const ddp_gpu_update& update, const Rule& rule) {
  if (update.count == 0) return;
  List& list = lists_[dtype];
  ddp_gpu_update next = update;
  next.rule = position_of(list.rules, rule);
  if (!list.updates.empty() && follows(list.updates.back(), next, dtype))
    list.updates.back().count += next.count;
  else
    list.updates.push_back(next);
}

template <class Rule>
void RuleUpdates<Rule>::launch(const gpu::Device& device, const ddp_gpu_shape& shape, ddp_gpu_stop stop, void* stream) {
  const struct Forget {
    RuleUpdates& noted;
    ~Forget() { noted.clear(); }
  } forget{*this};
  const gpu::Device::Current current(device);
  for (size_t dtype = 0; dtype < kDtypes; ++dtype)
    if (const List& list = lists_[dtype]; !list.updates.empty())
      device.check(call(device.table(), list.updates, list.rules, static_cast<ddp_dtype>(dtype), shape, stop, stream),
                   "updating parameters");
}

ddp_gpu_adam_rule gpu_rule(const cpu::AdamStep& step) noexcept {
  return {step.keep,   step.weight_decay, step.beta1,      step.share1, step.beta2,
          step.share2, step.size,         step.root_scale, step.epsilon};
}

ddp_gpu_sgd_rule gpu_rule(const cpu::SgdStep& step) noexcept {
  return {step.rate,
          step.weight_decay,
          step.momentum,
          step.gradient_share,
          static_cast<int32_t>(step.mode),
          step.nesterov ? 1 : 0};
}

template class RuleUpdates<ddp_gpu_adam_rule>;
template class RuleUpdates<ddp_gpu_sgd_rule>;

}  // namespace ddp::optim
