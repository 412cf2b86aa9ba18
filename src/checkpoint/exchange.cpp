// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/exchange.hpp"

#include <algorithm>
#include <vector>

#include "core/bytes.hpp"
#include "core/differing_ranks.hpp"
#include "core/hash.hpp"

namespace ddp::checkpoint {
namespace {

constexpr size_t kMaxCompared = 500'000;  // hashes that fit into one exchange

std::string text_of(const Item& item) { return "\"" + (folder_of(item.part) + item.name) + "\" " + describe(item.tensor); }

/// One hash for each item, as bytes.
std::string hashes_of(const std::vector<Item>& items) {
  ByteWriter writer;
  for (size_t i = 0; i < std::min(items.size(), kMaxCompared); ++i) {
    const std::string text = text_of(items[i]);
    writer.number(content_hash(text.data(), text.size()));
  }
  return std::move(writer).bytes();
}

/// The first position in which one of the ranks differs from rank 0.
size_t first_difference(const std::vector<std::string>& all) {
  size_t first = kMaxCompared;
  for (const std::string& one : all) {
    const size_t common = std::min(one.size(), all[0].size());
    const auto at =
        std::mismatch(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(common), all[0].begin()).first - one.begin();
    if (one != all[0]) first = std::min(first, static_cast<size_t>(at) / sizeof(uint64_t));
  }
  return first;
}

[[noreturn]] void throw_difference(const char* function, const group::Group& group, const std::vector<std::string>& all,
                                   const char* what) {
  size_t other = 1;
  while (other + 1 < all.size() && all[other] == all[0]) ++other;
  throw Error(DDP_ERROR_MISMATCH, std::string(function) + ": " + group.name_of(static_cast<int32_t>(other)) + " " + what +
                                      " " + all[other] + ", but rank 0 " + what + " " + all[0] +
                                      "; all ranks must pass the same")
      .with(ranks_that_differ(all.size(), [&](size_t rank) { return all[rank] != all[0]; }));
}

bool all_equal(const std::vector<std::string>& all) {
  return std::all_of(all.begin(), all.end(), [&](const std::string& one) { return one == all[0]; });
}

}  // namespace

void check_same(group::Group& group, const char* function, const Manifest& manifest) {
  const std::string hashes = hashes_of(manifest.items);
  ByteWriter mine;
  mine.text(manifest.summary)
      .number(static_cast<uint64_t>(manifest.items.size()))
      .number(content_hash(hashes.data(), hashes.size()));
  const std::vector<std::string> all = group.gather("checkpoint parts", mine.bytes());
  if (all_equal(all)) return;
  // Every rank sees the same answers, so all take the same way from here.
  std::vector<std::string> summaries;
  summaries.reserve(all.size());
  for (const std::string& one : all) summaries.emplace_back(ByteReader(one).text());
  if (!all_equal(summaries)) throw_difference(function, group, summaries, "passes");
  const size_t at = first_difference(group.gather("checkpoint tensors", hashes));
  const std::string here = at < manifest.items.size() ? text_of(manifest.items[at]) : "no further tensor";
  throw_difference(function, group, group.gather("checkpoint tensor", here), "registered");
}

Error with_place(const group::Group& group, const char* function, const Error& error) {
  const std::string_view text = error.text();
  if (text.substr(0, std::string_view(function).size()) == function) return error;
  const std::string where = group.size() > 1 ? ", on " + group.name_of(group.rank()) : "";
  return error.retold(error.status(), function + where + ": " + error.text());
}

std::string share_text(group::Group& group, const char* function, std::string text) {
  auto bytes = static_cast<int64_t>(text.size());
  group.broadcast(flat_tensor(&bytes, DDP_I64, 1), 0);
  together(group, function, [&] { text.resize(static_cast<size_t>(bytes)); });
  group.broadcast(flat_tensor(text.data(), DDP_U8, bytes), 0);
  return text;
}

}  // namespace ddp::checkpoint
