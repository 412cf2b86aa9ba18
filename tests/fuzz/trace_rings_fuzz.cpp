// SPDX-License-Identifier: Apache-2.0
// Any bytes as events, gathers and names of two rings, whose heads say what a ring has to: they are put together to a file
// that is JSON; names are the program's bytes, whatever their encoding.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "trace/merge.hpp"
#include "trace/ring.hpp"

namespace {

using namespace ddp::trace;

constexpr size_t kSlots = 16;
constexpr size_t kHeadBytes = 256;  // of an input: they become the counts, the owner and the gathers

/// The bytes of a ring file. `which`: another kernel's.
std::string ring_of(std::string_view bytes, int which) {
  std::string text(static_cast<size_t>(kSlotsAt) + kSlots * sizeof(Slot), '\0');
  RingHead head{};
  head.version = RingHead::kVersion;
  head.head_bytes = sizeof head;
  head.capacity = kSlots;
  head.magic = RingHead::kMagic;
  const std::string_view first = bytes.substr(0, kHeadBytes), rest = bytes.substr(std::min(kHeadBytes, bytes.size()));
  first.copy(reinterpret_cast<char*>(&head.head), std::min(sizeof head.head, first.size()));
  first.copy(reinterpret_cast<char*>(&head.owner), std::min(sizeof head.owner, first.size()));
  first.copy(reinterpret_cast<char*>(&head.gather_times), std::min(sizeof head.gather_times, first.size()));
  head.owner.boot[0] = static_cast<char>('a' + which);
  head.name_bytes = static_cast<int64_t>(std::min<size_t>(rest.size(), 4096));
  std::memcpy(text.data(), static_cast<void*>(&head), sizeof head);
  rest.copy(text.data() + sizeof head, static_cast<size_t>(head.name_bytes));
  for (size_t i = 0; i < kSlots; ++i) {
    char* const slot = text.data() + kSlotsAt + i * sizeof(Slot);
    const uint64_t turn = 2 * i + 2;
    std::memcpy(slot, &turn, sizeof turn);
    rest.substr(std::min(i * 40, rest.size())).copy(slot + sizeof turn, sizeof(Slot) - sizeof turn);
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::vector<Ring> rings;
  for (int which = 0; which < 2; ++which)
    if (auto ring = read_ring(ring_of(bytes, which))) rings.push_back(std::move(*ring));
  std::string text;
  merge(std::move(rings), [&](std::string_view piece) { text += piece; });
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  if (nlohmann::json::accept(text)) return 0;
  std::fprintf(stderr, "no JSON: %s\n", text.c_str());
  std::abort();
}
