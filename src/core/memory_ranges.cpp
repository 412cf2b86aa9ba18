// SPDX-License-Identifier: Apache-2.0
#include "core/memory_ranges.hpp"

#include <algorithm>

namespace ddp {

MemoryRanges::Place MemoryRanges::begin_of(const Tensor& tensor) noexcept {
  return {tensor.device_index, reinterpret_cast<uintptr_t>(tensor.data)};
}

MemoryRanges::Place MemoryRanges::end_of(const Tensor& tensor) noexcept {
  return {tensor.device_index, reinterpret_cast<uintptr_t>(tensor.data) + static_cast<uintptr_t>(tensor.bytes())};
}

MemoryRanges::Ranges::const_iterator MemoryRanges::first_in(const Place& begin, const Place& end) const {
  auto found = ranges_.lower_bound(end);
  while (found != ranges_.begin() && std::prev(found)->second.end > begin) --found;
  return found;
}

std::optional<MemoryRanges::Owner> MemoryRanges::find(const Tensor& tensor) const {
  if (tensor.count == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto found = first_in(begin_of(tensor), end_of(tensor));
  if (found == ranges_.end() || found->first >= end_of(tensor)) return std::nullopt;
  return found->second.owner;
}

std::optional<MemoryRanges::Owner> MemoryRanges::find_fixed(const Tensor& tensor) const {
  if (tensor.count == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const Place end = end_of(tensor);
  for (auto other = first_in(begin_of(tensor), end); other != ranges_.end() && other->first < end; ++other)
    if (other->second.owner.kind != Kind::kGrad) return other->second.owner;
  return std::nullopt;
}

void MemoryRanges::claim(const Tensor& tensor, Owner owner) {
  if (tensor.count == 0) return;
  const std::lock_guard lock(mutex_);
  ranges_.emplace(begin_of(tensor), Range{end_of(tensor), owner});
}

void MemoryRanges::release(const Tensor& tensor) {
  if (tensor.count == 0) return;
  const std::lock_guard lock(mutex_);
  ranges_.erase(begin_of(tensor));
}

void MemoryRanges::move_grad(int32_t index, const Tensor& from, const Tensor& to, const IsMarked& is_marked) {
  if (to.count == 0) return;
  const std::lock_guard lock(mutex_);
  Ranges::node_type mine = take(index, from);
  mine.key() = begin_of(to);
  mine.mapped().end = end_of(to);
  Ranges::const_iterator other = first_in(mine.key(), mine.mapped().end);
  const Ranges::const_iterator end = ranges_.lower_bound(mine.mapped().end);
  if (std::any_of(other, end, [&](const auto& range) { return is_marked(range.second.owner.index); }))
    return contest(std::move(mine));
  while (other != end) contest(ranges_.extract(other++));
  ranges_.insert(std::move(mine));
}

int32_t MemoryRanges::settle(int32_t index) noexcept {
  const std::lock_guard lock(mutex_);
  Grad& grad = grads_[static_cast<size_t>(index)];
  if (grad.awaited) return kAwaited;
  if (grad.node.empty()) return kNobody;
  const Place end = grad.node.mapped().end;
  const auto other = first_in(grad.node.key(), end);
  if (other != ranges_.end() && other->first < end) return other->second.owner.index;
  ranges_.insert(std::move(grad.node));
  grad.contested.store(false, std::memory_order_release);
  return kNobody;
}

MemoryRanges::Ranges::node_type MemoryRanges::take(int32_t index, const Tensor& from) {
  Grad& grad = grads_[static_cast<size_t>(index)];
  if (grad.node.empty()) return ranges_.extract(begin_of(from));
  grad.awaited = false;
  grad.contested.store(false, std::memory_order_release);
  return std::move(grad.node);
}

void MemoryRanges::await_grad(int32_t index, const Tensor& from) {
  if (from.count == 0) return;
  const std::lock_guard lock(mutex_);
  contest(take(index, from));
  grads_[static_cast<size_t>(index)].awaited = true;
}

void MemoryRanges::drop_grad(int32_t index, const Tensor& from) {
  if (from.count == 0) return;
  const std::lock_guard lock(mutex_);
  static_cast<void>(take(index, from));
}

void MemoryRanges::contest(Ranges::node_type node) noexcept {
  Grad& grad = grads_[static_cast<size_t>(node.mapped().owner.index)];
  grad.node = std::move(node);
  grad.contested.store(true, std::memory_order_release);
}

}  // namespace ddp
