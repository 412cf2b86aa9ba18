// SPDX-License-Identifier: Apache-2.0
// Which memory is whose: ranges that do not overlap, by address.
// A gradient may be given another address (move_grad), also one that another gradient still has: frameworks that allocate
// gradients again return the same blocks in another order. So the memory belongs to the gradient that got it last, and the
// other one is contested until it moves or the memory is free again. A gradient that comes later is contested too until it
// has memory. A marked gradient must not be contested. Cost: a gradient that stays where it is costs nothing; one that moves
// a search among the ranges; nothing is allocated. Threads: contested_by and settle from any; the rest from one thread at a
// time. Tested by unit/core/memory_ranges_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "core/tensor.hpp"

namespace ddp {

class MemoryRanges {
 public:
  enum class Kind { kValue, kGrad, kOwnGrad, kBuffer };  // kOwnGrad: in memory of libddp, so it never moves
  struct Owner {
    Kind kind;
    int32_t index;  // of the parameter or the buffer
  };
  using IsMarked = std::function<bool(int32_t index)>;
  static constexpr int32_t kNobody = -1;
  static constexpr int32_t kAwaited = -2;

  /// The owners of parts of this memory.
  [[nodiscard]] std::optional<Owner> find(const Tensor& tensor) const;
  /// Who of those that never move has some of it.
  [[nodiscard]] std::optional<Owner> find_fixed(const Tensor& tensor) const;
  /// `tensor` overlaps no registered memory.
  void claim(const Tensor& tensor, Owner owner);
  void release(const Tensor& tensor);
  /// One more parameter, whose gradient may move.
  void add_parameter() { grads_.emplace_back(); }

  /// The gradient of a parameter goes from one address to another, which overlaps nothing that is fixed. `is_marked(index)`:
  /// others must not lose their memory.
  void move_grad(int32_t index, const Tensor& from, const Tensor& to, const IsMarked& is_marked);
  /// The gradient, which is registered at `from`, has no memory until it moves.
  void await_grad(int32_t index, const Tensor& from);
  /// The gradient is no more.
  void drop_grad(int32_t index, const Tensor& from);
  /// Some of the gradient's memory was given to another one later, or belongs to one that is marked; or it has none yet.
  [[nodiscard]] bool is_contested(int32_t index) const noexcept {
    return grads_[static_cast<size_t>(index)].contested.load(std::memory_order_acquire);
  }
  /// Of a contested gradient: the parameter whose gradient has its memory now. kNobody: it is free, and the gradient's
  /// again. kAwaited: it has none yet.
  [[nodiscard]] int32_t settle(int32_t index) noexcept;

 private:
  using Place = std::pair<int32_t, uintptr_t>;  // device (-1: host memory), address
  struct Range {
    Place end;
    Owner owner;
  };
  using Ranges = std::map<Place, Range>;  // by begin, disjoint
  struct Grad {
    std::atomic<bool> contested{false};
    bool awaited = false;
    Ranges::node_type node;  // while it is contested
  };

  [[nodiscard]] static Place begin_of(const Tensor& tensor) noexcept;
  [[nodiscard]] static Place end_of(const Tensor& tensor) noexcept;
  /// The first range that ends behind `begin`: what overlaps goes from there to the first that does not begin before `end`.
  [[nodiscard]] Ranges::const_iterator first_in(const Place& begin, const Place& end) const;
  [[nodiscard]] Ranges::node_type take(int32_t index, const Tensor& from);
  void contest(Ranges::node_type node) noexcept;

  mutable std::mutex mutex_;  // guards ranges_ and nodes
  Ranges ranges_;
  std::deque<Grad> grads_;  // by parameter
};

}  // namespace ddp
