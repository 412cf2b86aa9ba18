// SPDX-License-Identifier: Apache-2.0
// A training whose ranks keep their state and die at chosen moments of their own work, and the result of the same steps in
// one process without shard: the same library, but nothing that divides, keeps or goes back. Gradients are small integers,
// so a mean has the same bits however many ranks form it.
#pragma once

#include "core/float16.hpp"
#include "ddp/experimental.h"
#include "support/defaults.hpp"
#include "support/group_procs.hpp"
#include "support/keep_plan.hpp"

namespace ddp::test {

class KeepTraining : NotCopied {
 public:
  static constexpr int64_t kSizes[] = {7, 5'000, 70'000};

  /// `id` below 0: all of it in this process, not sharded.
  KeepTraining(const KeepPlan& plan, int32_t id) : plan_(plan), id_(id) {
    for (const int64_t size : kSizes) values_.emplace_back(size * 4);
    for (size_t p = 0; p < values_.size(); ++p)
      for (int64_t i = 0; i < kSizes[p]; ++i) put(values_[p].data(), i, 1.0F);
    must(create_group());
    if (plan_.earlier_model) create_earlier();
    create_model();
    create_optimizer();
    if (plan_.two_models) create_other();
  }
  ~KeepTraining() {
    ddp_ema_destroy(ema_);
    for (ddp_optimizer* const each : {other_optimizer_, second_, optimizer_}) ddp_optimizer_destroy(each);
    for (ddp_model* const each : {other_, model_, earlier_}) ddp_model_destroy(each);
    ddp_group_destroy(group_);
  }

  /// Who made each step, and the hash of parameters and averages behind the last.
  std::string run() {
    for (ddp_model* const model : {earlier_, model_, other_}) {
      ddp_status status = DDP_OK;
      while (model != nullptr && (status = ddp_model_commit(model, nullptr)) != DDP_OK) go_on(status);
    }
    go_on(learn_members());
    for (ddp_status status = keep(); status != DDP_OK; status = keep()) go_on(status);
    ddp_model_destroy(std::exchange(earlier_, nullptr));
    while (step_ < plan_.steps) {
      ddp_status status = train(members_);
      if (status == DDP_OK) {
        story_.push_back(members_);
        ++step_;
        if (plan_.keep_every != 0 && step_ % plan_.keep_every == 0) status = keep();
      }
      go_on(status);
    }
    go_on(ddp_group_barrier(group_));
    return write_story();
  }

  /// These steps, by these members.
  std::string repeat(const std::vector<uint64_t>& story) {
    if (earlier_ != nullptr) must(ddp_model_commit(earlier_, nullptr));
    must(ddp_model_commit(model_, nullptr));
    if (other_ != nullptr) must(ddp_model_commit(other_, nullptr));
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
    auto options = defaults<ddp_group_options>();
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
    auto options = defaults<ddp_model_options>();
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
    auto options = defaults<ddp_optimizer_options>();
    options.undo = plan_.undo ? 1 : 0;
    options.in_backward = plan_.in_backward ? 1 : 0;
    if (!is_replay() && plan_.shard) options.shard = 1, options.late_values = plan_.late_values ? 1 : 0;
    options.master_weights = plan_.masters ? 1 : 0;
    options.max_norm = plan_.max_norm;
    const int32_t list[] = {2, 0};
    if (plan_.two_optimizers) options.parameters = list, options.parameter_count = 2;
    if (plan_.own_rule) {
      auto rule = defaults<ddp_custom_options>();
      rule.rate = 0.0625;
      must(ddp_optimizer_create_custom(model_, &rule, &options, "momentum", &KeepTraining::update, this, nullptr,
                                       &optimizer_));
    } else {
      must(ddp_optimizer_create_adam(model_, nullptr, &options, &optimizer_));
    }
    if (plan_.loss_scale != 0) {
      auto scale = defaults<ddp_loss_scale_options>();
      scale.initial = plan_.loss_scale;
      scale.interval = 5;  // it grows on the way
      must(ddp_optimizer_set_loss_scale(optimizer_, &scale));
    }
    options.parameters = nullptr, options.parameter_count = 0;
    if (!plan_.shard_second) options.shard = options.late_values = 0;
    if (plan_.two_optimizers) must(ddp_optimizer_create_adam(model_, nullptr, &options, &second_));
    const double decay = 0.875;
    if (plan_.averages) must(ddp_ema_create(model_, &decay, 1, &ema_));
  }

  void create_earlier() {
    must(ddp_model_create(group_, nullptr, &earlier_));
    must(ddp_model_add_array(earlier_, "earlier", earlier_value_, nullptr, 3, nullptr));
  }

  /// A second model, which makes a step of its own behind each step of the first.
  void create_other() {
    ddp_tensor value;
    must(ddp_model_create(group_, nullptr, &other_));
    must(ddp_tensor_init(&value, other_values_.data(), DDP_F32, 1, &kOtherSize));
    must(ddp_model_add_parameter(other_, "other", &value, nullptr, nullptr));
    auto options = defaults<ddp_optimizer_options>();
    must(ddp_optimizer_create_adam(other_, nullptr, &options, &other_optimizer_));
  }

  ddp_status train_other(const std::vector<int32_t>& ids) {
    if (const ddp_status status = ddp_model_begin_backward(other_, DDP_PASS_REDUCE); status != DDP_OK) return status;
    ddp_tensor grad;
    must(ddp_model_get_grad(other_, 0, &grad));
    for (int64_t i = 0; i < kOtherSize; ++i) {
      float sum = 0;
      for (const int32_t id : ids) sum += gradient_of(id, step_ + 5, i);
      static_cast<float*>(grad.data)[i] = sum / static_cast<float>(ids.size());
    }
    if (const ddp_status status = ddp_model_mark_ready(other_, 0, nullptr); status != DDP_OK) return status;
    if (const ddp_status status = ddp_model_end_backward(other_, nullptr); status != DDP_OK) return status;
    return ddp_optimizer_step(other_optimizer_, nullptr);
  }

  ddp_status keep() {
    if (plan_.keep_every == 0) return DDP_OK;
    std::vector<ddp_state> states(plan_.two_models ? 2 : 1);
    for (ddp_state& state : states) must(ddp_state_init(&state, sizeof state));
    states[0].model = model_;
    states[0].optimizer = optimizer_;
    states[0].ema = ema_;
    states[0].epoch = step_ / 4;
    states[0].step = step_;
    const std::string own = own_bytes(step_);
    states[0].own = own.data();
    states[0].own_bytes = static_cast<int64_t>(own.size());
    if (plan_.two_models) states[1].model = other_;
    die_at_page(KeepPlan::Moment::kInKeep, PROT_NONE);
    const ddp_status status = ddp_state_keep(states.data(), static_cast<int32_t>(states.size()), nullptr);
    die(KeepPlan::Moment::kInKeep, kAnyPage);
    has_kept_ = has_kept_ || status == DDP_OK;
    return status;
  }

  /// Of a step, longer with each.
  [[nodiscard]] static std::string own_bytes(int64_t step) {
    return "step " + std::to_string(step) + std::string(static_cast<size_t>(step) * 500, 'x');
  }

  static int32_t update(void* self, const ddp_update_slice* slice) {
    auto& training = *static_cast<KeepTraining*>(self);
    auto* const value = static_cast<float*>(slice->value);
    auto* const momentum = static_cast<float*>(slice->state[0]);
    const auto* const grad = static_cast<const float*>(slice->grad);
    for (int64_t i = 0; i < slice->count; ++i) {
      if (i == slice->count / 2) training.die(KeepPlan::Moment::kInStep, training.blocks_);
      momentum[i] = 0.5F * momentum[i] + grad[i];
      value[i] -= static_cast<float>(slice->rate) * momentum[i];
    }
    ++training.blocks_;
    return 0;
  }

  static constexpr int32_t kAnyPage = -1;
  void die(KeepPlan::Moment moment, int32_t after = 0) const {
    for (const KeepPlan::Death& death : plan_.deaths)
      if (death.id == id_ && death.step == step_ && death.moment == moment && (death.after == after || after == kAnyPage))
        std::raise(SIGKILL);
  }
  void die_at_page(KeepPlan::Moment moment, int allowed) const {
    for (const KeepPlan::Death& death : plan_.deaths)
      if (death.id == id_ && death.step <= step_ && death.moment == moment &&
          (moment == KeepPlan::Moment::kInLoad || death.step == step_) &&
          ddp_model_wait_values(model_) == DDP_OK)  // else a gather's thread meets the page
        values_.back().guard(death.after, allowed);
  }

  /// Some time into a recovery.
  void die_in_recovery() const {
    for (const KeepPlan::Death& death : plan_.deaths) {
      if (death.id != id_ || death.moment != KeepPlan::Moment::kInRecovery || death.step > step_) continue;
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
    die(KeepPlan::Moment::kBeforePass);
    if (const ddp_status status = ddp_model_begin_backward(model_, DDP_PASS_REDUCE); status != DDP_OK) return status;
    blocks_ = 0;
    const std::vector<int32_t> ids = ids_of(members);
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
      if (p + 1 == values_.size()) die(KeepPlan::Moment::kInPass);
    }
    if (const ddp_status status = ddp_model_end_backward(model_, nullptr); status != DDP_OK) return status;
    die(KeepPlan::Moment::kBeforeStep);
    if (const ddp_status status = ddp_optimizer_step(optimizer_, nullptr); status != DDP_OK) return status;
    die(KeepPlan::Moment::kBetweenSteps);
    ddp_status behind = second_ != nullptr ? ddp_optimizer_step(second_, nullptr) : DDP_OK;
    if (behind == DDP_OK && ema_ != nullptr) behind = ddp_ema_update(ema_, nullptr);  // waits for values that come late
    if (behind == DDP_OK && other_ != nullptr) behind = train_other(ids);
    if (behind == DDP_OK) die(KeepPlan::Moment::kAfterStep);
    return behind;
  }

  /// Whose gradients this process forms.
  [[nodiscard]] std::vector<int32_t> ids_of(uint64_t members) const {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < 64; ++id)
      if (is_replay() ? (members >> id & 1) != 0 : id == id_) ids.push_back(id);
    return ids;
  }

  ddp_status learn_members() {
    std::vector<int64_t> ids(static_cast<size_t>(ddp_group_get_size(group_)));
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
      auto options = defaults<ddp_recover_options>();
      options.wait_ms = 10'000;
      ddp_recovery recovery{};
      recovery.struct_size = sizeof recovery;
      die_in_recovery();
      die_at_page(KeepPlan::Moment::kInLoad, PROT_READ);
      must(ddp_group_recover(group_, &options, &recovery));
      for (const KeepPlan::Death& death : plan_.deaths)
        if (death.id == id_ && death.moment == KeepPlan::Moment::kInLoad && death.step <= step_) std::raise(SIGKILL);
      check_way_back(recovery);
      if (plan_.shard && plan_.keep_every > 0 && has_kept_ && !plan_.all_is_lost && recovery.size < recovery.previous_size)
        expect(recovery.kept_step >= 0, "a part is lost, so all go back");
      must(ddp_optimizer_get_step_count(optimizer_, &step_));
      int64_t second = step_;
      if (second_ != nullptr) must(ddp_optimizer_get_step_count(second_, &second));
      expect(second_ == nullptr || (second == step_ && recovery.step == step_), "both have made the steps of the recovery");
      story_.resize(static_cast<size_t>(step_));
      status = learn_members();
    }
  }

  void check_way_back(const ddp_recovery& recovery) {
    if (recovery.kept_epoch < 0) return expect(recovery.went_back == 0 && recovery.kept_step == -1, "not gone back");
    expect(recovery.kept_step == recovery.step && recovery.kept_epoch == recovery.step / 4, "the step that was kept");
    expect(recovery.went_back >= 0 && recovery.went_back <= plan_.keep_every, "not further back than the last keep");
    std::string own(65'536, '\0');
    int64_t bytes = 0;
    must(ddp_group_get_kept(group_, own.data(), static_cast<int64_t>(own.size()), &bytes));
    own.resize(static_cast<size_t>(bytes));
    expect(own == own_bytes(recovery.kept_step), "the program's own bytes");
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
    for (const float value : other_values_) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      hash = (hash ^ bits) * 1099511628211U;
    }
    std::string text = std::to_string(hash);
    for (const uint64_t members : story_) text += " " + std::to_string(members);
    return text;
  }

  const KeepPlan& plan_;
  const int32_t id_;
  static constexpr int64_t kOtherSize = 900;
  std::vector<Pages> values_;
  std::vector<float> other_values_ = std::vector<float>(kOtherSize, 0.5F);
  ddp_group* group_ = nullptr;
  ddp_model* model_ = nullptr;
  ddp_optimizer* optimizer_ = nullptr;
  ddp_optimizer* second_ = nullptr;  // of the same model; NULL: there is one
  ddp_ema* ema_ = nullptr;
  ddp_model* other_ = nullptr;  // NULL: there is one model
  ddp_model* earlier_ = nullptr;
  float earlier_value_[3] = {1, 2, 3};
  ddp_optimizer* other_optimizer_ = nullptr;
  bool has_kept_ = false;
  uint64_t members_ = 0;
  int64_t step_ = 0;
  int32_t blocks_ = 0;
  std::vector<uint64_t> story_;
};

}  // namespace ddp::test
