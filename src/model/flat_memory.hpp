// SPDX-License-Identifier: Apache-2.0
// Memory of libddp's own for gradients or values of a model, laid out as its plan says, so that buckets are reduced and
// given in place: a block for each bucket, its pieces at their offsets; one block for a parameter that is split over
// buckets. A packed bucket begins at a page and has its pages for itself. On a GPU all blocks are one allocation. Threads:
// as Model. Tested by unit/model/model_memory_test.cpp, conformance/own_values_test.cpp and gpu_host/in_place_test.cpp.
#pragma once

#include <functional>
#include <list>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "group/group.hpp"

namespace ddp::model {

class FlatMemory {
 public:
  explicit FlatMemory(group::Group& group) noexcept : group_(group) {}
  ~FlatMemory() { free(); }
  FlatMemory(const FlatMemory&) = delete;
  FlatMemory& operator=(const FlatMemory&) = delete;

  /// Zeroed memory for the parameters that `wanted` selects. Gives their addresses by index, NULL for the others.
  /// Collective: if one rank cannot get its memory, all throw.
  [[nodiscard]] std::vector<std::byte*> allocate(const Parameters& table, const Plan& plan, const char* what,
                                                 const std::function<bool(const Parameter&)>& wanted);
  void free() noexcept;

 private:
  struct Block {
    size_t bucket = 0;  // of its pieces; of a split parameter: the one that has its last elements
    int64_t bytes = 0;
    bool behind = false;  // the block before
  };
  [[nodiscard]] static std::vector<Block> blocks_of(const Parameters& table, const Plan& plan,
                                                    const std::function<bool(const Parameter&)>& wanted);
  [[nodiscard]] std::byte* take(const Tensor& beside, int64_t bytes);
  /// In host memory, for blocks[at] and those that lie behind it.
  [[nodiscard]] std::byte* take_pages(const std::vector<Block>& blocks, size_t at, const Tensor& beside);

  group::Group& group_;
  std::vector<void*> memory_;  // from the group
};

/// All such memory of a model. Each commit that needs some adds what is missing.
class ModelMemory {
 public:
  enum class Values { kOfProgram, kOwn };

  explicit ModelMemory(group::Group& group) noexcept : group_(group) {}

  /// For gradients that are libddp's and have no place yet; with kOwn also for values, which are copied there. Collective,
  /// also if nothing is missing. After an error nothing has a place that it had not before.
  void add_missing(Parameters& table, const Plan& plan, Values values, void* stream);

 private:
  group::Group& group_;
  std::list<FlatMemory> blocks_;
};

}  // namespace ddp::model
