// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/parts.hpp"

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

}  // namespace

Manifest list_parts(const Parts& parts) {
  Manifest manifest;
  std::vector<Item> others;
  if (parts.optimizer != nullptr) add_items(others, Part::kOptimizer, parts.optimizer->state_tensors());
  if (parts.ema != nullptr) add_items(others, Part::kEma, parts.ema->state_tensors());
  if (parts.outer != nullptr) add_items(others, Part::kOuter, parts.outer->state_tensors());
  manifest.items = list_items(parts.model.table(), std::move(others));
  manifest.summary = parts.optimizer == nullptr ? "no optimizer" : std::string("optimizer ") + parts.optimizer->kind();
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
  if (parts.optimizer != nullptr) {
    texts[kOptimizerKey] = parts.optimizer->kind();
    add_fields(texts, kOptimizerFieldKey, parts.optimizer->state_fields());
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

Counters read_counters(const Texts& texts) { return {read_number(texts, kEpochKey), read_number(texts, kStepKey)}; }

void check_kinds(const Parts& parts, const Texts& texts, bool partial) {
  const auto kind = texts.find(kOptimizerKey);
  const bool has_optimizer = kind != texts.end();
  if (parts.optimizer != nullptr && !has_optimizer && !partial)
    throw Error(DDP_ERROR_MISMATCH, "it holds no optimizer; pass optimizer = NULL to load the model alone");
  if (parts.optimizer != nullptr && has_optimizer && kind->second != parts.optimizer->kind())
    throw Error(DDP_ERROR_MISMATCH, "it holds the state of the optimizer \"" + kind->second + "\", but \"" +
                                        parts.optimizer->kind() + "\" was passed");
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
