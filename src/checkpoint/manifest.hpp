// SPDX-License-Identifier: Apache-2.0
// Which tensors and texts a checkpoint of given parts has: the one list from which files are written and to which files are
// compared.
//
// Parameters and buffers have the user's own names, unchanged. What libddp adds begins with a prefix that no user's name
// begins with:
// "ddp:", or if such a name exists "ddp1:", "ddp2:" and so on; the file records the prefix. So no names can collide.
// Promises: the same parts give the same list, in the same order (wide elements first, which aligns every tensor in the
// file).
// Tested by unit/checkpoint/manifest_test.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/format.hpp"
#include "core/owned_span.hpp"
#include "core/parameters.hpp"
#include "core/tensor.hpp"

namespace ddp::checkpoint {

enum class Part { kModel, kOptimizer, kEma, kOuter };

struct Item {
  Part part = Part::kModel;
  std::string name;  // without the prefix
  Tensor tensor;     // where it lives
  // By rank, in ascending order, if the ranks hold parts of it: at `tensor.data` this rank's parts are contiguous.
  std::vector<std::vector<OwnedSpan>> parts{};
};

struct Manifest {
  std::vector<Item> items;
  std::string summary;  // "optimizer adam, averages 0.9": what was passed besides the model
};

/// "optimizer/", "ema/" and "outer/": between the prefix and the name; "" for the model.
[[nodiscard]] const char* folder_of(Part part) noexcept;

/// The model's tensors, then `others`; in the order of the file. Throws INVALID_ARGUMENT for a name that a checkpoint can
/// not hold.
[[nodiscard]] std::vector<Item> list_items(const Parameters& table, std::vector<Item> others);

/// A prefix that no parameter and no buffer begins with.
[[nodiscard]] std::string choose_prefix(const std::vector<Item>& items);

/// Names, dtypes, shapes and offsets, as they go into the file.
[[nodiscard]] std::vector<TensorEntry> file_entries(const std::vector<Item>& items, const std::string& prefix);

/// How long a header may be that is read for this model: room for an optimizer, 16 averages and 16 MiB of texts. Saving
/// keeps to it too.
[[nodiscard]] int64_t header_cap(const Parameters& table) noexcept;

}  // namespace ddp::checkpoint
