// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/match.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "core/error.hpp"

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

}  // namespace ddp::checkpoint
