// SPDX-License-Identifier: Apache-2.0
// What libddp writes into a safetensors header and reads out of it: the version, the checksums, the prefix of its own
// tensors, and the offsets of all tensors. A value; no file.
//
// A file of libddp has `ddp.*` entries in __metadata__. `ddp.tensor_hashes` holds the XXH3 of each tensor (16 digits each,
// in the order of the data); `ddp.checksum` is the XXH3 of length and header with its own digits as zeros. So the header
// vouches for the tensors, one tensor can be verified alone, and the header is one pass ahead of the data.
// A file without any `ddp.*` entry is plain weights from elsewhere: it has no checksums, no optimizer and no counters.
// Tested by unit/checkpoint/layout_test.cpp and fuzz/safetensors_fuzz.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format.hpp"

namespace ddp::checkpoint {

inline constexpr const char* kFormatKey = "ddp.format";
inline constexpr const char* kVersionKey = "ddp.version";
inline constexpr const char* kPrefixKey = "ddp.prefix";
inline constexpr const char* kChecksumKey = "ddp.checksum";
inline constexpr const char* kHashesKey = "ddp.tensor_hashes";
inline constexpr const char* kFormatVersion = "2";     // as it is written
inline constexpr const char* kOldFormatVersion = "1";  // as it is read too: one optimizer, whose texts have no number
inline constexpr const char* kNoChecksum =
    "none";  // in the place of the checksum: another program wrote the file, with ddp.* texts

struct Layout {
  Header header;
  bool plain = false;            // not written by libddp
  bool checked = true;           // has checksums; not so if plain, or with kNoChecksum
  std::string prefix;            // of tensors that are not the user's; empty if plain
  std::vector<uint64_t> hashes;  // of the tensors, in their order; empty if not checked
  int64_t data_begin = 0;        // in the file
  int64_t file_bytes = 0;        // that the header declares
};

/// The bytes before the data: adds the format, the hashes and the checksum to `header`.
[[nodiscard]] std::string make_head(Header header, const std::vector<uint64_t>& hashes);

/// From the bytes before the data (length and header). Throws IO with a text that begins after the file's name.
[[nodiscard]] Layout read_head(std::string_view head);

/// 16 lower-case hexadecimal digits, and back; false if they are not that.
[[nodiscard]] std::string to_hex(uint64_t value);
[[nodiscard]] bool from_hex(std::string_view text, uint64_t* value) noexcept;

}  // namespace ddp::checkpoint
