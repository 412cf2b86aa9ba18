// SPDX-License-Identifier: Apache-2.0
#include "optim/part_arrays.hpp"

#include <vector>

#include "optim/masters.hpp"

namespace ddp::optim {

std::unique_ptr<PartArrays> view(const PartLayout& layout, int32_t rank, const Ownership& ownership, bool has_undo,
                                 const FoundMemory& found) {
  const Parameters& table = layout.table;
  const auto parts = [&](int32_t index) { return ownership.parts(rank, index); };
  const auto halves = [&](int32_t index) { return Masters::has(table.parameter(index)) ? parts(index) : OwnedParts(); };
  auto arrays = std::make_unique<PartArrays>(layout.arrays);
  std::vector<OptimizerState*> stores{&arrays->store};
  if (layout.has_masters) stores.push_back(&arrays->masters);
  arrays->store.keep_two_sides(layout.has_two_sides);
  arrays->masters.keep_two_sides(layout.has_two_sides);
  arrays->store.lie_in([&](int64_t bytes) { return found(PartArrays::kStore, bytes); });
  arrays->masters.lie_in([&](int64_t bytes) { return found(PartArrays::kMasters, bytes); });
  arrays->undo.lie_in([&](int64_t bytes) { return found(PartArrays::kUndo, bytes); });
  arrays->store.allocate(table, parts);
  if (layout.has_masters) arrays->masters.allocate(table, halves);
  if (has_undo) arrays->undo.allocate(table, stores, parts);
  arrays->store.lie_in(nullptr);  // found is destroyed
  arrays->masters.lie_in(nullptr);
  arrays->undo.lie_in(nullptr);
  return arrays;
}

}  // namespace ddp::optim
