// SPDX-License-Identifier: Apache-2.0
// A training with eight virtual ranks through the public API: several arrays, running statistics and an average, on random
// numbers that belong to the part. Its rank may die, of its own SIGKILL, at many moments of a step.
#pragma once

#include "support/surviving_parts.hpp"

namespace ddp::test {

inline constexpr int32_t kParts = 8;
inline constexpr int64_t kBufferStep = 8, kSamples = 8 * 4;
inline constexpr size_t kArraySizes[] = {300, 2'000, 1, 700};

enum class Moment { kNever, kSendingBuffers, kInFirstPart, kBetweenParts, kInLastPart, kBehindPass, kBehindStep };

struct Death {
  int64_t step;
  Moment moment;
};
using Deaths = std::map<int, Death>;  // by the rank that a process had in the beginning

struct PartsWay {
  const char* name;
  bool adam = true;
  bool in_backward = false;
  double max_norm = 0;
  double loss_scale = 0;
};

inline constexpr PartsWay kMomentumWay{"momentum", false};
inline constexpr PartsWay kAdamWay{"Adam, clipping, loss scale", true, false, 2.5, 64};
inline constexpr PartsWay kInBackwardWay{"Adam in backward", true, true};

inline uint64_t hash_of_bytes(const void* data, size_t bytes) {  // FNV-1a
  uint64_t hash = 14695981039346656037U;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211U;
  return hash;
}

class PartsTraining : NotCopied {
 public:
  explicit PartsTraining(ddp_group* group, const PartsWay& way = kMomentumWay, Death death = {-1, Moment::kNever})
      : group_(group), way_(way), death_(death) {
    auto model = defaults<ddp_model_options>();
    model.first_bucket_bytes = model.bucket_bytes = 3'000;  // the second parameter is split
    OK(ddp_model_create(group_, &model, &model_));
    for (size_t p = 0; p < std::size(kArraySizes); ++p) {
      weights_.emplace_back(kArraySizes[p], 0.1F);
      gradients_.emplace_back(kArraySizes[p]);
      OK(ddp_model_add_array(model_, ("w" + std::to_string(p)).c_str(), weights_[p].data(), gradients_[p].data(),
                             static_cast<int64_t>(kArraySizes[p]), nullptr));
    }
    const ddp_tensor running = {running_.data(), DDP_F32, DDP_CPU, 0, 1, {static_cast<int64_t>(running_.size())}};
    OK(ddp_model_add_buffer(model_, "running", &running, nullptr));
    make_optimizer();
    const double decay = 0.75;
    OK(ddp_ema_create(model_, &decay, 1, &ema_));
  }
  ~PartsTraining() {
    ddp_ema_destroy(ema_);
    ddp_optimizer_destroy(optimizer_);
    ddp_model_destroy(model_);
  }

  ddp_status commit() { return ddp_model_commit(model_, nullptr); }
  int64_t step_count() const {
    int64_t count = 0;
    OK(ddp_optimizer_get_step_count(optimizer_, &count));
    return count;
  }

  ddp_status step(int64_t number) {
    ddp_virtual_ranks mine{};
    mine.struct_size = sizeof mine;
    OK(ddp_group_get_virtual_ranks(group_, &mine));
    if (const ddp_status status = ddp_model_sync_buffers(model_, 0, nullptr); status != DDP_OK) return status;
    if (expects_death(number))  // no rank dies before all have the buffers
      if (const ddp_status status = ddp_group_barrier(group_); status != DDP_OK) return status;
    die_at(number, Moment::kSendingBuffers);
    if (number == kBufferStep)
      if (const ddp_status status = ddp_model_sync_buffers(model_, 0, nullptr); status != DDP_OK) return status;
    std::vector<double> losses;
    for (int32_t part = mine.first; part < mine.first + mine.count; ++part)
      if (const ddp_status status = make_part(mine, part, number, losses); status != DDP_OK) return status;
    die_at(number, Moment::kBehindPass);
    if (!way_.in_backward && expects_death(number))
      if (const ddp_status status = ddp_group_barrier(group_); status != DDP_OK) return status;
    if (const ddp_status status = ddp_optimizer_step(optimizer_, nullptr); status != DDP_OK) return status;
    OK(ddp_ema_update(ema_, nullptr));
    die_at(number, Moment::kBehindStep);
    return ddp_group_reduce_part_metrics(group_, losses.data(), 1, DDP_AVERAGE);
  }

  /// Hashes of weights and averages.
  std::string weights() {
    std::string all = "weights" + hash_of_weights();
    OK(ddp_ema_swap(ema_, 0, nullptr));
    all += " averages" + hash_of_weights();
    OK(ddp_ema_swap(ema_, 0, nullptr));
    return all;
  }
  /// And of running statistics after the last step.
  std::string result() {
    OK(ddp_model_sync_buffers(model_, 0, nullptr));
    return weights() + " running" + hex(hash_of_bytes(running_.data(), running_.size() * sizeof(float)));
  }

 private:
  void make_optimizer() {
    auto options = defaults<ddp_optimizer_options>();
    options.in_backward = way_.in_backward ? 1 : 0;
    options.max_norm = way_.max_norm;
    auto sgd = defaults<ddp_sgd_options>();
    auto adam = defaults<ddp_adam_options>();
    sgd.rate = 0.01;
    sgd.momentum = 0.9;
    adam.rate = 0.01;
    OK(way_.adam ? ddp_optimizer_create_adam(model_, &adam, &options, &optimizer_)
                 : ddp_optimizer_create_sgd(model_, &sgd, &options, &optimizer_));
    if (way_.loss_scale == 0) return;
    auto scale = defaults<ddp_loss_scale_options>();
    scale.initial = way_.loss_scale;
    OK(ddp_optimizer_set_loss_scale(optimizer_, &scale));
  }

  bool expects_death(int64_t number) const { return number == 3 || number == 6 || number == kBufferStep; }
  void die_at(int64_t number, Moment moment) const {
    if (number == death_.step && moment == death_.moment) raise(SIGKILL);
  }

  ddp_status make_part(const ddp_virtual_ranks& mine, int32_t part, int64_t number, std::vector<double>& losses) {
    const bool is_first = part == mine.first, is_last = part + 1 == mine.first + mine.count;
    if (!is_first) die_at(number, Moment::kBetweenParts);
    if (is_first)
      for (std::vector<float>& gradient : gradients_) std::fill(gradient.begin(), gradient.end(), 0.0F);
    losses.push_back(forward_and_backward(part, number));
    if (const ddp_status status = ddp_model_begin_backward(model_, is_last ? DDP_PASS_REDUCE : DDP_PASS_PART);
        status != DDP_OK)
      return status;
    for (int32_t p = static_cast<int32_t>(std::size(kArraySizes)) - 1; p >= 0; --p) {
      if (const ddp_status status = ddp_model_mark_ready(model_, p, nullptr); status != DDP_OK) break;  // the end tells
      if (p == 2 && is_first) die_at(number, Moment::kInFirstPart);
      if (p == 2 && is_last) die_at(number, Moment::kInLastPart);
    }
    return ddp_model_end_backward(model_, nullptr);
  }

  double forward_and_backward(int32_t part, int64_t number) {
    auto sampler = defaults<ddp_sampler>();
    sampler.dataset_size = kSamples;
    sampler.rank = part;
    sampler.size = kParts;
    int64_t sample = 0, key = 0;
    OK(ddp_sampler_fill(&sampler, number / 4, number % 4, 1, &sample));
    OK(ddp_virtual_rank_key(7, number, part, &key));
    double loss = 0;
    for (size_t p = 0; p < std::size(kArraySizes); ++p)
      for (size_t i = 0; i < kArraySizes[p]; ++i) {
        const float x = static_cast<float>((static_cast<size_t>(sample) * 31 + i * 17 + p) % 23) / 7.0F - 1.5F;
        const float noise = static_cast<float>((key >> (i % 48)) & 15) / 37.0F;
        const float error = weights_[p][i] * x - (3 * x + noise);
        gradients_[p][i] += error * x * static_cast<float>(way_.loss_scale == 0 ? 1 : way_.loss_scale);
        loss += static_cast<double>(error) * static_cast<double>(error);
      }
    for (float& each : running_) each = 0.9F * each + static_cast<float>(part + 1) * weights_[0][0] + 0.1F;
    return loss;
  }

  static std::string hex(uint64_t hash) {
    char text[32] = "";
    std::snprintf(text, sizeof text, " %016llx", static_cast<unsigned long long>(hash));
    return text;
  }
  std::string hash_of_weights() const {
    std::string all;
    for (const std::vector<float>& each : weights_) all += hex(hash_of_bytes(each.data(), each.size() * sizeof(float)));
    return all;
  }

  ddp_group* group_;
  const PartsWay way_;
  const Death death_;
  ddp_model* model_ = nullptr;
  ddp_optimizer* optimizer_ = nullptr;
  ddp_ema* ema_ = nullptr;
  std::vector<std::vector<float>> weights_, gradients_;
  std::vector<float> running_ = std::vector<float>(5, 1.0F);
};

}  // namespace ddp::test
