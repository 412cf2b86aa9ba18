// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.hpp"

#include <algorithm>
#include <unordered_set>

#include "core/error.hpp"

namespace ddp::checkpoint {
namespace {

void check_name(const std::string& name) {
  if (name == "__metadata__")
    throw Error(
        DDP_ERROR_INVALID_ARGUMENT,
        "a tensor named \"__metadata__\" can not be in a checkpoint, because safetensors reserves the name; register it "
        "under another one");
  if (!is_utf8(name))
    throw Error(DDP_ERROR_INVALID_ARGUMENT,
                "the tensor name \"" + name + "\" is not UTF-8, so it can not be in a checkpoint");
}

}  // namespace

const char* folder_of(Part part) noexcept {
  switch (part) {
    case Part::kModel: return "";
    case Part::kOptimizer: return "optimizer/";
    case Part::kEma: return "ema/";
    case Part::kOuter: return "outer/";
  }
  return "";
}

std::vector<Item> list_items(const Parameters& table, std::vector<Item> others) {
  std::vector<Item> items;
  items.reserve(table.parameters().size() + table.buffers().size() + others.size());
  for (const Parameter& parameter : table.parameters())
    if (!parameter.removed) items.push_back({Part::kModel, parameter.name, parameter.value});
  for (const Buffer& buffer : table.buffers())
    if (!buffer.removed) items.push_back({Part::kModel, buffer.name, buffer.value});
  std::move(others.begin(), others.end(), std::back_inserter(items));
  if (static_cast<int64_t>(items.size()) > kMaxTensors)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the checkpoint would have %zu tensors; %lld are possible", items.size(),
                     static_cast<long long>(kMaxTensors));
  std::unordered_set<std::string> seen;
  for (const Item& item : items) {
    check_name(item.name);
    if (!seen.insert(folder_of(item.part) + ("\n" + item.name)).second)
      throw Error(DDP_ERROR_INVALID_ARGUMENT, "two tensors of the checkpoint would have the name \"" +
                                                  (folder_of(item.part) + item.name) + "\"; rename one of the parameters");
  }
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return dtype_size(a.tensor.dtype) > dtype_size(b.tensor.dtype); });
  return items;
}

std::string choose_prefix(const std::vector<Item>& items) {
  for (int number = 0;; ++number) {
    std::string prefix = number == 0 ? "ddp:" : "ddp" + std::to_string(number) + ":";
    if (std::none_of(items.begin(), items.end(), [&](const Item& item) {
          return item.part == Part::kModel && item.name.compare(0, prefix.size(), prefix) == 0;
        }))
      return prefix;
  }
}

std::vector<TensorEntry> file_entries(const std::vector<Item>& items, const std::string& prefix) {
  std::vector<TensorEntry> entries;
  entries.reserve(items.size());
  int64_t at = 0;
  for (const Item& item : items) {
    TensorEntry entry;
    entry.name = item.part == Part::kModel ? item.name : prefix + folder_of(item.part) + item.name;
    entry.dtype = find_dtype(dtype_name(item.tensor.dtype));
    entry.shape.assign(item.tensor.shape.begin(), item.tensor.shape.begin() + item.tensor.ndim);
    entry.begin = at;
    if (__builtin_add_overflow(at, item.tensor.bytes(), &at))
      throw Error(DDP_ERROR_INVALID_ARGUMENT, "the checkpoint would have more than 2^63 bytes");
    entry.end = at;
    entries.push_back(std::move(entry));
  }
  return entries;
}

int64_t header_cap(const Parameters& table) noexcept {
  constexpr int64_t kTexts = int64_t{16} << 20;
  constexpr int64_t kTensorsPerName = 22;   // itself, three of an optimizer, 16 averages, two of an outer optimizer
  constexpr int64_t kBytesPerTensor = 512;  // shape, offsets, hash, and the fields of an optimizer about it
  constexpr int64_t kEscaped = 6;           // one byte as \u001f
  int64_t bytes = kTexts;
  const auto add = [&](const std::string& name) {
    bytes += kTensorsPerName * (kBytesPerTensor + kEscaped * static_cast<int64_t>(name.size()));
  };
  for (const Parameter& parameter : table.parameters()) add(parameter.name);
  for (const Buffer& buffer : table.buffers()) add(buffer.name);
  return std::min(bytes, kMaxHeaderBytes);
}

}  // namespace ddp::checkpoint
