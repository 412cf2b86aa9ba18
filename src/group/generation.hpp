// SPDX-License-Identifier: Apache-2.0
// A generation of a peer checkpoint as values: which tensors it has, which bytes of them each rank writes, who holds which
// part of it, and which generation a recovery takes. Pure; every rank finds the same.
//
// A tensor that the ranks hold in parts is written by its owners. A tensor that every rank holds whole is shared out: the
// bytes of all such tensors, in their order, are divided into one piece for each rank. So each byte is written once.
// The idea is that of Gemini (Wang et al., SOSP 2023): checkpoints in the memory of the ranks, each on two hosts.
// Tested by unit/group/generation_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/owned_span.hpp"
#include "core/tensor.hpp"
#include "group/recoverable.hpp"

namespace ddp::group {

/// The same as any rank knows it.
struct KeptItem {
  std::string name;
  ddp_dtype dtype = DDP_F32;
  int64_t count = 0;  // elements
  std::vector<std::vector<OwnedSpan>> parts{};

  [[nodiscard]] int64_t bytes() const noexcept;
  [[nodiscard]] bool is_alike(const KeptTensor& tensor) const noexcept;
};
[[nodiscard]] KeptItem item_of(const KeptTensor& tensor);

/// Bytes of one tensor that a rank writes.
struct KeptPiece {
  size_t item = 0;
  int64_t first = 0;  // byte of the tensor
  int64_t bytes = 0;
  int64_t held = 0;  // where they begin in the memory of the rank that writes them
  int64_t at = 0;    // where they begin in its part
};

/// Those of a rank, by place in its part.
[[nodiscard]] std::vector<KeptPiece> pieces_of(const std::vector<KeptItem>& items, int32_t ranks, int32_t rank);
/// Bytes of a part.
[[nodiscard]] int64_t end_of(const std::vector<KeptPiece>& pieces) noexcept;

/// The tensors of a generation: the same for all that are kept in one set of buffers.
struct KeptTable {
  int32_t ranks = 1;
  std::vector<int32_t> followers{};  // places in the list of the group's models
  std::vector<size_t> ends{};        // of each of them: the end of its tensors in `items`
  std::vector<KeptItem> items{};
};
[[nodiscard]] std::string write_table(const KeptTable& table);
/// Throws INTERNAL for bytes that cannot be one.
[[nodiscard]] KeptTable read_table(std::string_view bytes);

/// What is kept besides the tensors, in the part of rank 0.
struct KeptNote {
  int64_t epoch = 0;
  int64_t step = 0;
  std::vector<std::string> fields{};  // of each model's optimizers and averages
  std::string bytes{};                // the program's own
};
[[nodiscard]] std::string write_note(const KeptNote& note);
[[nodiscard]] KeptNote read_note(std::string_view bytes);

/// Names a generation: `set` are its ranks and buffers, `number` grows with each keep. The later is
/// greater.
struct GenerationName {
  int64_t set = 0;
  int64_t number = 0;
  auto operator<=>(const GenerationName&) const = default;
};

/// A part that a rank can give: that of `rank` among the `ranks` ranks that kept it.
struct HeldPart {
  GenerationName generation;
  int32_t ranks = 0;
  int32_t rank = 0;
  bool is_own = false;
};

/// What a rank tells of itself in a recovery.
struct Holdings {
  std::vector<int32_t> torn{};  // places of models that are not whole
  int64_t steps = -1;           // that it had made when the group broke
  GenerationName newest{};      // the greatest set and number of which it knows
  std::vector<HeldPart> parts{};
};
[[nodiscard]] std::string write_holdings(const Holdings& holdings);
[[nodiscard]] Holdings read_holdings(std::string_view bytes);

/// The newest generation of which every part is left, and which rank gives each part: the one that wrote it if it is here,
/// else the lowest that holds it. Empty: every generation lacks a part.
struct Found {
  GenerationName generation;
  std::vector<int32_t> givers;  // by rank of the generation: rank of now
};
[[nodiscard]] std::optional<Found> find_generation(const std::vector<Holdings>& by_rank);

}  // namespace ddp::group
