// SPDX-License-Identifier: Apache-2.0
// Any bytes as the beginning of a checkpoint: they are refused with status IO, or what was understood holds together by a
// check that shares nothing with the reader, and survives being written and read again.
#include <cstdint>
#include <string_view>

#include "checkpoint/layout.hpp"
#include "core/error.hpp"
#include "fuzz/must.hpp"

namespace {

using namespace ddp;
using namespace ddp::checkpoint;

/// Wide arithmetic, which can not overflow here: 16 dimensions are multiplied only until the product leaves 64 bits.
void check_header(const Header& header) {
  __extension__ using Wide = unsigned __int128;
  int64_t at = 0;
  for (const TensorEntry& entry : header.tensors) {
    must(entry.begin == at && entry.end >= entry.begin, "tensors tile the data");
    at = entry.end;
    Wide bits = static_cast<Wide>(entry.dtype->bits);
    for (const int64_t extent : entry.shape) {
      must(extent >= 0, "extents are not negative");
      bits *= static_cast<Wide>(extent);
      must(bits <= static_cast<Wide>(INT64_MAX), "sizes fit");
    }
    must(bits % 8 == 0 && bits / 8 == static_cast<Wide>(entry.end - entry.begin), "shape and offsets agree");
    must(entry.name.size() <= kMaxNameBytes && entry.shape.size() <= kMaxRank, "limits");
    must(entry.name.find('\0') == std::string::npos, "no NUL in a name");
  }
}

bool same(const Header& a, const Header& b) {
  if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
  for (const TensorEntry& entry : a.tensors) {  // empty tensors may change places
    bool found = false;
    for (const TensorEntry& other : b.tensors)
      found = found || (entry.name == other.name && entry.dtype == other.dtype && entry.shape == other.shape &&
                        entry.begin == other.begin && entry.end == other.end);
    if (!found) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const Layout layout = read_head(bytes);
    check_header(layout.header);
    must(layout.plain || layout.hashes.size() == layout.header.tensors.size(), "one hash for each tensor");
  } catch (const Error& error) {
    must(error.status() == DDP_ERROR_IO, "refusals are IO");
  }
  if (size < 8) return 0;
  try {  // without the length and the checksum, which damage rarely gets past
    const Header header = parse_header(bytes.substr(8));
    check_header(header);
    if (header.tensors.size() > 100) return 0;
    const std::string written = serialize_header(header);
    must(same(parse_header(std::string_view(written).substr(8)), header), "it survives being written");
  } catch (const Error& error) {
    must(error.status() == DDP_ERROR_IO, "refusals are IO");
  }
  return 0;
}
