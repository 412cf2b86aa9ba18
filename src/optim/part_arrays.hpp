// SPDX-License-Identifier: Apache-2.0
// The arrays of one rank's part of an optimizer's state, and a view of those of another rank: laid out as it lays them out,
// over memory that holds them.
// Tested by capi/kept_copy_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/ownership.hpp"
#include "core/parameters.hpp"
#include "optim/optimizer_state.hpp"
#include "optim/undo.hpp"

namespace ddp::optim {

/// What all parts have in common.
struct PartLayout {
  const Parameters& table;
  size_t arrays = 0;  // of the rule
  bool has_masters = false;
  bool has_two_sides = false;  // (OptimizerState)
};

struct PartArrays {
  enum Kind { kStore, kMasters, kUndo, kKinds };
  explicit PartArrays(size_t arrays) : store(arrays) {}
  OptimizerState store;
  OptimizerState masters{1};
  Undo undo;
};

/// `found`: where the arrays of a kind are. It may throw, and then nothing is left.
using FoundMemory = std::function<std::shared_ptr<std::byte>(PartArrays::Kind, int64_t bytes)>;
[[nodiscard]] std::unique_ptr<PartArrays> view(const PartLayout& layout, int32_t rank, const Ownership& ownership,
                                               bool has_undo, const FoundMemory& found);

}  // namespace ddp::optim
