// SPDX-License-Identifier: Apache-2.0
// The safetensors header as a value: bytes to Header and back. No file, no group, no model.
//
// A file is: header length (8 bytes, little-endian), header (JSON, padded with spaces), tensors. The reader is strict,
// because a checkpoint may come from anywhere: no key twice, texts only in __metadata__, only dtype, shape and data_offsets
// in a tensor, plain decimal integers, checked arithmetic, and tensors that tile the data exactly (no hole, no overlap).
// Every refusal is an Error with status IO and a text that starts after the file's name ("the header ..."). Promises: memory
// in proportion to the header; linear time except for one sort; no recursion. Source of the rules: the safetensors format
// description and its reference reader, with further limits (README.md). Tested by unit/checkpoint/format_test.cpp and
// fuzz/safetensors_fuzz.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

namespace ddp::checkpoint {

inline constexpr int64_t kLengthBytes = 8;
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr int64_t kMaxTensors = 1'000'000;
inline constexpr size_t kMaxNameBytes = 1'280;  // 1,024 of the user's name, and what libddp adds to it
inline constexpr size_t kMaxRank = 16;
inline constexpr int64_t kDataAlignment = 64;  // of the data's beginning in files that libddp writes

/// An element type that a file may hold; libddp itself has seven of them.
struct FileDtype {
  const char* name;
  int64_t bits;
};

/// NULL if the format has no such type.
[[nodiscard]] const FileDtype* find_dtype(std::string_view name) noexcept;

struct TensorEntry {
  std::string name;
  const FileDtype* dtype = nullptr;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // in the data, bytes
  int64_t end = 0;

  [[nodiscard]] int64_t bytes() const noexcept { return end - begin; }
  /// "F32 [2, 3]"
  [[nodiscard]] std::string describe() const;
};

struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> tensors;  // by offset

  [[nodiscard]] int64_t data_bytes() const noexcept { return tensors.empty() ? 0 : tensors.back().end; }
};

/// The header's length from a file's first 8 bytes; refuses one above `cap`.
[[nodiscard]] int64_t parse_length(std::string_view first_bytes, int64_t cap);

/// The JSON between the length and the data.
[[nodiscard]] Header parse_header(std::string_view json);

/// Length, JSON (metadata by key, tensors in order) and padding. Throws INVALID_ARGUMENT for a text that is not UTF-8.
[[nodiscard]] std::string serialize_header(const Header& header);

/// Is it UTF-8, by the rule of the JSON library?
[[nodiscard]] bool is_utf8(std::string_view text);

}  // namespace ddp::checkpoint
