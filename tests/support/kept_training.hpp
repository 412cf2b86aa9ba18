// SPDX-License-Identifier: Apache-2.0
// A sharded training whose ranks die at chosen moments of their own work, and what the same steps give in one process
// without shard: the same library, but nothing of what divides, keeps or deals out state. Gradients are small integers, so
// a mean has the same bits however many ranks form it.
#pragma once

#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/float16.hpp"
#include "ddp/experimental.h"
#include "support/group_procs.hpp"

namespace ddp::test {

struct KeptPlan {
  std::string rendezvous;
  int32_t ranks = 4;
  ddp_backend backend = DDP_BACKEND_AUTO;
  int32_t ranks_a_host = 0;  // on made-up hosts; 0: they are where they are
  int64_t steps = 16;
  // how it updates
  bool own_rule = false;  // of the program, else AdamW
  bool in_backward = false;
  bool bfloat = false;
  bool masters = false;
  bool own_values = false;
  bool averages = false;
  bool keep_copy = true;
  double max_norm = 0;
  double loss_scale = 0;
  int32_t virtual_ranks = 0;
  // who dies
  enum class Moment {
    kNever,
    kBeforePass,
    kInPass,      // one parameter is marked
    kBeforeStep,  // the pass has ended
    kInStep,      // the rule has changed some blocks, and they may be given
    kAfterStep,
    kInRecovery  // the others may be anywhere in it
  };
  struct Death {
    int32_t id = -1;
    int64_t step = 0;
    Moment moment = Moment::kNever;
    int32_t after = 0;  // of the rule, blocks in this step; in a recovery, microseconds
  };
  std::vector<Death> deaths;
};

class KeptTraining {
 public:
  static constexpr int64_t kSizes[] = {7, 5'000, 70'000};

  /// `id` below 0: all of it in this process, not sharded.
  KeptTraining(const KeptPlan& plan, int32_t id) : plan_(plan), id_(id) {
    for (const int64_t size : kSizes) values_.emplace_back(static_cast<size_t>(size * 4), std::byte{});
    for (size_t p = 0; p < values_.size(); ++p)
      for (int64_t i = 0; i < kSizes[p]; ++i) put(values_[p].data(), i, 1.0F);
    must(create_group());
    create_model();
    create_optimizer();
  }
  ~KeptTraining() {
    ddp_ema_destroy(ema_);
    ddp_optimizer_destroy(optimizer_);
    ddp_model_destroy(model_);
    ddp_group_destroy(group_);
  }
  KeptTraining(const KeptTraining&) = delete;
  KeptTraining& operator=(const KeptTraining&) = delete;

  /// Who made each step, and the hash of parameters and averages behind the last.
  std::string run() {
    for (ddp_status status = ddp_model_commit(model_, nullptr); status != DDP_OK; status = ddp_model_commit(model_, nullptr))
      go_on(status);
    go_on(learn_members());
    while (step_ < plan_.steps) {
      const ddp_status status = train(members_);
      if (status == DDP_OK) {
        story_.push_back(members_);
        ++step_;
      }
      go_on(status);
    }
    go_on(ddp_group_barrier(group_));
    return write_story();
  }

  /// These steps, by these members.
  std::string repeat(const std::vector<uint64_t>& story) {
    must(ddp_model_commit(model_, nullptr));
    for (const uint64_t members : story) {
      must(train(members));
      ++step_;
    }
    story_ = story;
    return write_story();
  }

  [[nodiscard]] static std::vector<uint64_t> read_members(const std::string& text) {
    std::vector<uint64_t> story;
    for (size_t at = text.find(' '); at != std::string::npos; at = text.find(' ', at + 1))
      story.push_back(std::stoull(text.substr(at + 1)));
    return story;
  }

 private:
  static void must(ddp_status status) {
    if (status != DDP_OK) throw Error(status, ddp_last_error());
  }
  [[nodiscard]] bool is_replay() const noexcept { return id_ < 0; }

  ddp_status create_group() {
    ddp_group_options options;
    must(ddp_group_options_init(&options, sizeof options));
    options.rank = is_replay() ? 0 : id_;
    options.world_size = is_replay() ? 1 : plan_.ranks;
    if (!is_replay()) options.backend = plan_.backend;
    options.heartbeat_ms = 100;
    options.dead_after_ms = 10'000;  // deaths are seen, and a rank may get no core for a while
    options.timeout_ms = 20'000;
    options.recoverable = is_replay() ? 0 : 1;
    options.virtual_ranks = is_replay() ? 0 : plan_.virtual_ranks;
    return ddp_group_create(is_replay() ? "local://replay" : plan_.rendezvous.c_str(), &options, &group_);
  }

  void create_model() {
    ddp_model_options options;
    must(ddp_model_options_init(&options, sizeof options));
    options.bucket_bytes = 100'000;
    options.own_values = plan_.own_values ? 1 : 0;
    must(ddp_model_create(group_, &options, &model_));
    for (size_t p = 0; p < values_.size(); ++p) {
      ddp_tensor value;
      must(ddp_tensor_init(&value, values_[p].data(), dtype(), 1, &kSizes[p]));
      must(ddp_model_add_parameter(model_, ("p" + std::to_string(p)).c_str(), &value, nullptr, nullptr));
    }
  }

  void create_optimizer() {
    ddp_optimizer_options options;
    must(ddp_optimizer_options_init(&options, sizeof options));
    options.shard = is_replay() ? 0 : 1;
    options.keep_copy = !is_replay() && plan_.keep_copy ? 1 : 0;
    options.in_backward = plan_.in_backward ? 1 : 0;
    options.master_weights = plan_.masters ? 1 : 0;
    options.max_norm = plan_.max_norm;
    if (plan_.own_rule) {
      ddp_custom_options rule;
      must(ddp_custom_options_init(&rule, sizeof rule));
      rule.rate = 0.0625;
      must(ddp_optimizer_create_custom(model_, &rule, &options, "momentum", &KeptTraining::update, this, nullptr,
                                       &optimizer_));
    } else {
      must(ddp_optimizer_create_adam(model_, nullptr, &options, &optimizer_));
    }
    if (plan_.loss_scale != 0) {
      ddp_loss_scale_options scale;
      must(ddp_loss_scale_options_init(&scale, sizeof scale));
      scale.initial = plan_.loss_scale;
      scale.interval = 5;  // it grows on the way
      must(ddp_optimizer_set_loss_scale(optimizer_, &scale));
    }
    const double decay = 0.875;
    if (plan_.averages) must(ddp_ema_create(model_, &decay, 1, &ema_));
  }

  static int32_t update(void* self, const ddp_update_slice* slice) {
    auto& training = *static_cast<KeptTraining*>(self);
    auto* const value = static_cast<float*>(slice->value);
    auto* const momentum = static_cast<float*>(slice->state[0]);
    const auto* const grad = static_cast<const float*>(slice->grad);
    for (int64_t i = 0; i < slice->count; ++i) {
      if (i == slice->count / 2) training.die(KeptPlan::Moment::kInStep, training.blocks_);
      momentum[i] = 0.5F * momentum[i] + grad[i];
      value[i] -= static_cast<float>(slice->rate) * momentum[i];
    }
    ++training.blocks_;
    return 0;
  }

  void die(KeptPlan::Moment moment, int32_t after = 0) const {
    for (const KeptPlan::Death& death : plan_.deaths)
      if (death.id == id_ && death.step == step_ && death.moment == moment && death.after == after) std::raise(SIGKILL);
  }

  /// Some time into a recovery.
  void die_in_recovery() const {
    for (const KeptPlan::Death& death : plan_.deaths) {
      if (death.id != id_ || death.moment != KeptPlan::Moment::kInRecovery || death.step > step_) continue;
      std::thread([after = death.after] {
        std::this_thread::sleep_for(std::chrono::microseconds(after));
        std::raise(SIGKILL);
      }).detach();
    }
  }

  [[nodiscard]] ddp_dtype dtype() const noexcept { return plan_.bfloat ? DDP_BF16 : DDP_F32; }
  void put(std::byte* data, int64_t i, float value) const noexcept {
    if (plan_.bfloat) {
      const uint16_t half = float_to_bfloat(value);
      std::memcpy(data + i * 2, &half, sizeof half);
    } else {
      std::memcpy(data + i * 4, &value, sizeof value);
    }
  }
  [[nodiscard]] static float gradient_of(int32_t id, int64_t step, int64_t element) noexcept {
    return static_cast<float>((id * 7 + step * 3 + element) % 11 - 5);
  }

  ddp_status train(uint64_t members) {
    double scale = 1;
    must(ddp_optimizer_get_loss_scale(optimizer_, &scale));
    die(KeptPlan::Moment::kBeforePass);
    if (const ddp_status status = ddp_model_begin_backward(model_, DDP_PASS_REDUCE); status != DDP_OK) return status;
    blocks_ = 0;
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < 64; ++id)
      if (is_replay() ? (members >> id & 1) != 0 : id == id_) ids.push_back(id);
    const auto count = static_cast<float>(ids.size());
    for (size_t p = values_.size(); p-- > 0;) {
      ddp_tensor grad;
      must(ddp_model_get_grad(model_, static_cast<int32_t>(p), &grad));
      auto* const data = static_cast<std::byte*>(grad.data);
      for (int64_t i = 0; i < kSizes[p]; ++i) {
        float sum = 0;
        for (const int32_t id : ids) sum += gradient_of(id, step_, i);
        put(data, i, sum * static_cast<float>(scale) / count);
      }
      if (const ddp_status status = ddp_model_mark_ready(model_, static_cast<int32_t>(p), nullptr); status != DDP_OK)
        return status;
      if (p + 1 == values_.size()) die(KeptPlan::Moment::kInPass);
    }
    if (const ddp_status status = ddp_model_end_backward(model_, nullptr); status != DDP_OK) return status;
    die(KeptPlan::Moment::kBeforeStep);
    if (const ddp_status status = ddp_optimizer_step(optimizer_, nullptr); status != DDP_OK) return status;
    if (ema_ != nullptr) must(ddp_ema_update(ema_, nullptr));
    die(KeptPlan::Moment::kAfterStep);
    return DDP_OK;
  }

  ddp_status learn_members() {
    std::vector<int64_t> ids(static_cast<size_t>(ddp_group_size(group_)));
    int64_t mine = id_;
    const int64_t one = 1;
    const auto all = static_cast<int64_t>(ids.size());
    ddp_tensor input, output;
    must(ddp_tensor_init(&input, &mine, DDP_I64, 1, &one));
    must(ddp_tensor_init(&output, ids.data(), DDP_I64, 1, &all));
    const ddp_status status = ddp_group_all_gather(group_, &input, &output, nullptr);
    if (status != DDP_OK) return status;
    members_ = 0;
    for (const int64_t id : ids) members_ |= uint64_t{1} << id;
    return DDP_OK;
  }

  void go_on(ddp_status status) {
    while (status != DDP_OK) {
      if (status != DDP_ERROR_PEER_FAILED && status != DDP_ERROR_ABORTED && status != DDP_ERROR_TIMED_OUT) must(status);
      ddp_recover_options options;
      must(ddp_recover_options_init(&options, sizeof options));
      options.wait_ms = 10'000;
      ddp_recovery recovery{};
      recovery.struct_size = sizeof recovery;
      die_in_recovery();
      must(ddp_group_recover(group_, &options, &recovery));
      must(ddp_optimizer_get_step_count(optimizer_, &step_));
      story_.resize(static_cast<size_t>(step_));
      status = learn_members();
    }
  }

  [[nodiscard]] uint64_t hash_values(uint64_t hash) const {
    for (size_t p = 0; p < values_.size(); ++p) {
      ddp_tensor value;
      must(ddp_model_get_value(model_, static_cast<int32_t>(p), &value));
      const auto* const bytes = static_cast<const unsigned char*>(value.data);
      for (int64_t at = 0; at < kSizes[p] * (plan_.bfloat ? 2 : 4); ++at) hash = (hash ^ bytes[at]) * 1099511628211U;
    }
    return hash;
  }

  [[nodiscard]] std::string write_story() {
    uint64_t hash = hash_values(1469598103934665603U);
    if (ema_ != nullptr) {
      must(ddp_ema_swap(ema_, 0, nullptr));
      hash = hash_values(hash);
      must(ddp_ema_swap(ema_, 0, nullptr));
    }
    std::string text = std::to_string(hash);
    for (const uint64_t members : story_) text += " " + std::to_string(members);
    return text;
  }

  const KeptPlan& plan_;
  const int32_t id_;
  std::vector<std::vector<std::byte>> values_;
  ddp_group* group_ = nullptr;
  ddp_model* model_ = nullptr;
  ddp_optimizer* optimizer_ = nullptr;
  ddp_ema* ema_ = nullptr;
  uint64_t members_ = 0;
  int64_t step_ = 0;
  int32_t blocks_ = 0;
  std::vector<uint64_t> story_;
};

}  // namespace ddp::test
