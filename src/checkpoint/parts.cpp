// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/parts.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "device/gpu/transfer.hpp"

namespace ddp::checkpoint {
namespace {

void add_items(std::vector<Item>& items, Part part, std::vector<model::StateTensor> tensors) {
  for (model::StateTensor& each : tensors) items.push_back({part, std::move(each.name), each.tensor, std::move(each.parts)});
}

std::string decays_of(const optim::Ema& ema) {
  std::string text;
  for (const double decay : ema.decays()) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, decay).ptr;
    text += (text.empty() ? "" : " ") + std::string(digits, end);
  }
  return text;
}

void add_fields(Texts& texts, const std::string& start, const Texts& fields) {
  for (const auto& [key, value] : fields) texts[start + key] = value;
}

int64_t read_number(const Texts& texts, const char* key) {
  const auto found = texts.find(key);
  if (found == texts.end()) return 0;
  const std::string& text = found->second;
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size())
    throw Error(DDP_ERROR_IO, std::string("its ") + key + " is not a number");
  return value;
}

constexpr const char* kFormat1OptimizerKey = "ddp.optimizer";  // the kind of the only one

void check_optimizers(const Optimizers& optimizers, const std::vector<SavedOptimizer>& saved, bool partial) {
  if (optimizers.empty() || (saved.empty() && partial)) return;
  if (saved.empty()) throw Error(DDP_ERROR_MISMATCH, "it holds no optimizer; pass optimizer = NULL to load the model alone");
  if (saved.size() != optimizers.size())
    throw make_error(
        DDP_ERROR_MISMATCH,
        "it holds the state of %zu optimizer%s, but %zu were passed; pass as many, in the same order, or none to "
        "load the model alone",
        saved.size(), saved.size() == 1 ? "" : "s", optimizers.size());
  for (size_t k = 0; k < saved.size(); ++k)
    if (saved[k].kind != optimizers[k].kind())
      throw Error(DDP_ERROR_MISMATCH, "it holds the state of the optimizer \"" + saved[k].kind + "\", but \"" +
                                          optimizers[k].kind() + "\" was passed" +
                                          (saved.size() > 1 ? " as number " + std::to_string(k) : ""));
}

}  // namespace

Manifest list_parts(const Parts& parts) {
  Manifest manifest;
  std::vector<Item> others;
  for (model::ReplicaState* const each : parts.optimizers) add_items(others, Part::kOptimizer, each->state_tensors());
  if (parts.ema != nullptr) add_items(others, Part::kEma, parts.ema->state_tensors());
  if (parts.outer != nullptr) add_items(others, Part::kOuter, parts.outer->state_tensors());
  manifest.items = list_items(parts.model.table(), std::move(others));
  if (parts.optimizers.empty()) manifest.summary = "no optimizer";
  for (const model::ReplicaState* const each : parts.optimizers)
    manifest.summary += (manifest.summary.empty() ? "optimizer " : ", ") + std::string(each->kind());
  manifest.summary += parts.ema == nullptr ? " and no averages" : " and averages " + decays_of(*parts.ema);
  if (parts.outer != nullptr) manifest.summary += ", an outer optimizer";
  return manifest;
}

const gpu::Device* settled_gpu(const Manifest& manifest) {
  std::vector<Tensor> tensors;
  for (const Item& item : manifest.items) tensors.push_back(item.tensor);
  const gpu::Device* const device = gpu::device_of(tensors);
  if (device != nullptr) device->synchronize();
  return device;
}

Texts collect_texts(const Parts& parts, const Counters& counters) {
  Texts texts;
  texts[kEpochKey] = std::to_string(counters.epoch);
  texts[kStepKey] = std::to_string(counters.step);
  for (size_t k = 0; k < parts.optimizers.size(); ++k) {
    const std::string key = kOptimizerStart + std::to_string(k);
    texts[key] = parts.optimizers[k].kind();
    add_fields(texts, key + ".", parts.optimizers[k].state_fields());
  }
  if (parts.ema != nullptr) {
    texts[kEmaKey] = decays_of(*parts.ema);
    add_fields(texts, kEmaFieldKey, parts.ema->state_fields());
  }
  if (parts.outer != nullptr) {
    texts[kOuterKey] = "yes";
    add_fields(texts, kOuterFieldKey, parts.outer->state_fields());
  }
  add_fields(texts, kUserKey, parts.model.checkpoint_info().metadata);
  return texts;
}

Texts with_start(const Texts& texts, const std::string& start) {
  Texts found;
  for (auto at = texts.lower_bound(start); at != texts.end() && at->first.compare(0, start.size(), start) == 0; ++at)
    found.emplace(at->first.substr(start.size()), at->second);
  return found;
}

std::vector<SavedOptimizer> saved_optimizers(const Texts& texts) {
  if (const auto kind = texts.find(kFormat1OptimizerKey); kind != texts.end())
    return {{kind->second, with_start(texts, kOptimizerStart)}};
  std::vector<SavedOptimizer> saved;
  for (;;) {
    const std::string key = kOptimizerStart + std::to_string(saved.size());
    const auto kind = texts.find(key);
    if (kind == texts.end()) return saved;
    saved.push_back({kind->second, with_start(texts, key + ".")});
  }
}

int64_t common_steps(const Optimizers& optimizers) {
  int64_t steps = -1;
  for (const model::ReplicaState* const each : optimizers)
    steps = steps < 0 ? each->optimizer_steps() : std::min(steps, each->optimizer_steps());
  return steps;
}

Counters read_counters(const Texts& texts) { return {read_number(texts, kEpochKey), read_number(texts, kStepKey)}; }

void check_kinds(const Parts& parts, const Texts& texts, bool partial) {
  check_optimizers(parts.optimizers, saved_optimizers(texts), partial);
  if (parts.outer != nullptr && texts.count(kOuterKey) == 0 && !partial)
    throw Error(DDP_ERROR_MISMATCH, "it holds no outer optimizer; pass outer = NULL to load without it");
  const auto decays = texts.find(kEmaKey);
  const bool has_ema = decays != texts.end();
  if (parts.ema != nullptr && !has_ema && !partial)
    throw Error(DDP_ERROR_MISMATCH, "it holds no averages; pass ema = NULL to load without them");
  if (parts.ema != nullptr && has_ema && decays->second != decays_of(*parts.ema))
    throw Error(DDP_ERROR_MISMATCH, "it holds averages with the decays " + decays->second + ", but the decays " +
                                        decays_of(*parts.ema) + " were passed");
}

}  // namespace ddp::checkpoint
