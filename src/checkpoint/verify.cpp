// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/verify.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "checkpoint/parts.hpp"
#include "core/error.hpp"
#include "core/hash.hpp"

namespace ddp::checkpoint {
namespace {

constexpr size_t kShown = 3;

/// "2 missing (w1, w2)": a count and the first few; "" if there are none.
std::string list(const char* kind, const std::vector<Difference>& differences) {
  if (differences.empty()) return "";
  std::string text = std::to_string(differences.size()) + " " + kind + " (";
  for (size_t i = 0; i < std::min(kShown, differences.size()); ++i) text += (i > 0 ? ", " : "") + differences[i].text;
  return text + (differences.size() > kShown ? ", ..." : "") + ")";
}

bool begins_with(std::string_view text, std::string_view start) noexcept { return text.substr(0, start.size()) == start; }

std::string file_name(const Item& item, const std::string& prefix) {
  return item.part == Part::kModel ? item.name : prefix + folder_of(item.part) + item.name;
}

bool same(const Tensor& tensor, const TensorEntry& entry) noexcept {
  // Programs that know the dtype C64 may write complex numbers as such; here they are pairs, the same bytes.
  if (tensor.dtype == DDP_F32 && tensor.ndim > 0 && tensor.shape[static_cast<size_t>(tensor.ndim - 1)] == 2 &&
      std::string_view(entry.dtype->name) == "C64")
    return std::equal(entry.shape.begin(), entry.shape.end(), tensor.shape.begin(), tensor.shape.begin() + tensor.ndim - 1);
  return std::string_view(dtype_name(tensor.dtype)) == entry.dtype->name &&
         std::equal(entry.shape.begin(), entry.shape.end(), tensor.shape.begin(), tensor.shape.begin() + tensor.ndim);
}

/// Does the file's tensor concern us, if nothing that was registered has its name?
bool expected(const std::string& name, const std::string& prefix, const std::vector<Part>& parts) noexcept {
  if (prefix.empty() || !begins_with(name, prefix)) return true;
  const std::string_view rest = std::string_view(name).substr(prefix.size());
  return std::any_of(parts.begin(), parts.end(), [&](Part part) { return begins_with(rest, folder_of(part)); });
}

std::string advice(const std::vector<TensorEntry>& tensors, const std::unordered_map<std::string_view, size_t>& places,
                   const std::vector<Item>& items) {
  constexpr std::string_view kWrapper = "module.";
  for (const Item& item : items)
    if (item.part == Part::kModel && places.count(std::string(kWrapper) + item.name) != 0 && places.count(item.name) == 0)
      return "; its names begin with \"module.\", which a wrapper added: save the wrapped model itself";
  return tensors.empty() ? "; it has no tensors" : "";
}

}  // namespace

Match compare(const std::vector<Item>& items, const Layout& layout, const std::vector<Part>& parts) {
  const auto& tensors = layout.header.tensors;
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < tensors.size(); ++i) places.emplace(tensors[i].name, i);
  Match match;
  std::vector<bool> used(tensors.size(), false);
  for (const Item& item : items) {
    const std::string name = file_name(item, layout.prefix);
    const auto place = places.find(name);
    match.places.push_back(place == places.end() ? Match::kAbsent : place->second);
    if (place == places.end()) {
      match.missing.push_back({name, "\"" + name + "\" " + describe(item.tensor)});
      continue;
    }
    used[place->second] = true;
    const TensorEntry& entry = tensors[place->second];
    if (!same(item.tensor, entry))
      match.different.push_back(
          {name, "\"" + name + "\" is " + entry.describe() + " in the file and " + describe(item.tensor) + " here"});
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!used[i] && expected(tensors[i].name, layout.prefix, parts))
      match.unexpected.push_back({tensors[i].name, "\"" + tensors[i].name + "\" " + tensors[i].describe()});
  match.advice = advice(tensors, places, items);
  return match;
}

void refuse_differences(const Match& match, const std::vector<Item>& items, bool partial) {
  bool any = items.empty();
  for (size_t i = 0; i < items.size(); ++i)
    any = any || (items[i].part == Part::kModel && match.places[i] != Match::kAbsent);
  std::string text;
  if (!partial || !any)
    for (const std::string& part : {list("missing", match.missing), list("unexpected", match.unexpected)})
      text += (text.empty() || part.empty() ? "" : ", ") + part;
  const std::string different = list("different", match.different);
  text += (text.empty() || different.empty() ? "" : ", ") + different;
  if (!text.empty()) throw Error(DDP_ERROR_MISMATCH, "it is of another model: " + text + match.advice);
}

namespace {

Layout read_layout(Source& source, int64_t cap) {
  std::string head(static_cast<size_t>(kLengthBytes), '\0');
  if (source.size(kLengthBytes) < kLengthBytes) throw Error(DDP_ERROR_IO, "it is too short for a safetensors file");
  source.read(0, head.data(), kLengthBytes);
  const int64_t length = parse_length(head, cap);
  if (source.size(kLengthBytes + length) < kLengthBytes + length)
    throw Error(DDP_ERROR_IO, "it ends inside its header of " + std::to_string(length) + " bytes; it is truncated");
  head.resize(static_cast<size_t>(kLengthBytes + length));
  source.read(kLengthBytes, head.data() + kLengthBytes, length);
  return read_head(head);
}

void check_length(Source& source, const Layout& layout) {
  const int64_t there = source.size(layout.file_bytes);
  if (there < layout.file_bytes)
    throw make_error(DDP_ERROR_IO, "it is truncated: its header declares %lld bytes, but it has %lld",
                     static_cast<long long>(layout.file_bytes), static_cast<long long>(there));
  if (there > layout.file_bytes)
    throw make_error(DDP_ERROR_IO, "it has more than the %lld bytes that its header declares",
                     static_cast<long long>(layout.file_bytes));
}

uint64_t hash_of(Source& source, int64_t offset, int64_t bytes, std::vector<std::byte>& buffer) {
  Hasher hasher;
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    const int64_t now = std::min(kChunkBytes, bytes - at);
    source.read(offset + at, buffer.data(), now);
    hasher.add(buffer.data(), static_cast<size_t>(now));
  }
  return hasher.value();
}

/// What is asked for besides the model.
std::vector<Part> listed(const Parts& parts) {
  std::vector<Part> all;
  if (!parts.optimizers.empty()) all.push_back(Part::kOptimizer);
  if (parts.ema != nullptr) all.push_back(Part::kEma);
  if (parts.outer != nullptr) all.push_back(Part::kOuter);
  return all;
}

}  // namespace

Opened verify(Source& source, const Parts& parts, const Manifest& manifest, bool partial, bool only_own) {
  Opened opened;
  opened.layout = read_layout(source, header_cap(parts.model.table()));
  const Layout& layout = opened.layout;
  if (only_own && !layout.checked)
    throw Error(DDP_ERROR_IO, "it was not written by libddp, so nothing shows that it is whole");
  check_kinds(parts, layout.header.metadata, partial);
  opened.match = compare(manifest.items, layout, listed(parts));
  refuse_differences(opened.match, manifest.items, partial);
  (void)read_counters(layout.header.metadata);
  check_length(source, layout);
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kChunkBytes, layout.file_bytes)));
  for (const size_t position : opened.match.places) {
    if (position == Match::kAbsent) continue;
    const TensorEntry& entry = layout.header.tensors[position];
    const int64_t offset = layout.data_begin + entry.begin;
    const uint64_t hash = hash_of(source, offset, entry.bytes(), buffer);
    if (layout.checked && hash != layout.hashes[position])
      throw Error(DDP_ERROR_IO, "the data of the tensor \"" + entry.name + "\" at byte " + std::to_string(offset) +
                                    " does not match its checksum; it is damaged");
    opened.places.push_back({offset, hash});
  }
  return opened;
}

}  // namespace ddp::checkpoint
