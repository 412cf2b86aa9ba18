#include "state/match.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "base/error.hpp"

namespace ddp::state {
namespace {

constexpr size_t kShown = 3;

/// "2 missing (w1, w2)": a count and the first few.
class Findings {
 public:
  explicit Findings(const char* kind) : kind_(kind) {}
  void add(std::string text) {
    if (++count_ <= kShown) list_ += (list_.empty() ? "" : ", ") + std::move(text);
  }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
  [[nodiscard]] std::string text() const {
    return std::to_string(count_) + " " + kind_ + " (" + list_ + (count_ > kShown ? ", ..." : "") + ")";
  }

 private:
  const char* kind_;
  size_t count_ = 0;
  std::string list_;
};

bool begins_with(std::string_view text, std::string_view start) noexcept { return text.substr(0, start.size()) == start; }

std::string file_name(const Item& item, const std::string& prefix) {
  return item.part == Part::kModel ? item.name : prefix + folder_of(item.part) + item.name;
}

bool same(const Tensor& tensor, const TensorEntry& entry) noexcept {
  return std::string_view(dtype_name(tensor.dtype)) == entry.dtype->name &&
         std::equal(entry.shape.begin(), entry.shape.end(), tensor.shape.begin(), tensor.shape.begin() + tensor.ndim);
}

/// Does the file's tensor concern us, if nothing that was registered has its name?
bool expected(const std::string& name, const std::string& prefix, bool with_optimizer, bool with_ema) noexcept {
  if (prefix.empty() || !begins_with(name, prefix)) return true;
  const std::string_view rest = std::string_view(name).substr(prefix.size());
  return (with_optimizer && begins_with(rest, folder_of(Part::kOptimizer))) ||
         (with_ema && begins_with(rest, folder_of(Part::kEma)));
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

std::vector<size_t> match(const std::vector<Item>& items, const Layout& layout, bool with_optimizer, bool with_ema) {
  const auto& tensors = layout.header.tensors;
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < tensors.size(); ++i) places.emplace(tensors[i].name, i);
  std::vector<size_t> found(items.size());
  std::vector<bool> used(tensors.size(), false);
  Findings missing("missing"), unexpected("unexpected"), different("different");
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string name = file_name(items[i], layout.prefix);
    const auto place = places.find(name);
    if (place == places.end()) {
      missing.add("\"" + name + "\" " + describe(items[i].tensor));
      continue;
    }
    found[i] = place->second;
    used[place->second] = true;
    const TensorEntry& entry = tensors[place->second];
    if (!same(items[i].tensor, entry))
      different.add("\"" + name + "\" is " + entry.describe() + " in the file and " + describe(items[i].tensor) + " here");
  }
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!used[i] && expected(tensors[i].name, layout.prefix, with_optimizer, with_ema))
      unexpected.add("\"" + tensors[i].name + "\" " + tensors[i].describe());
  std::string text;
  for (const Findings* findings : {&missing, &unexpected, &different})
    if (!findings->empty()) text += (text.empty() ? "" : ", ") + findings->text();
  if (!text.empty()) throw Error(DDP_ERROR_MISMATCH, "it is of another model: " + text + advice(tensors, places, items));
  return found;
}

}  // namespace ddp::state
