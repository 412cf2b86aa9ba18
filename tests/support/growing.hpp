// SPDX-License-Identifier: Apache-2.0
// A training whose model is reopened after some steps, while ranks die and join, and the same steps in one process by models
// that are never reopened. Gradients are small integers, so their mean has the same bits however many ranks form it.
#pragma once

#include "core/hash.hpp"
#include "ddp/experimental.h"
#include "support/defaults.hpp"
#include "support/group_procs.hpp"

namespace ddp::test {

struct GrowingPlan {
  enum class Moment { kNever, kBuilding, kGrown };  // between reopen and commit; in a later step
  std::string rendezvous;
  ddp_backend backend = DDP_BACKEND_AUTO;
  int32_t ranks = 3;
  bool shard = false;
  bool in_backward = false;
  bool keeps = false;    // in the memory of the ranks
  bool beside = false;   // there is a second model, which is not reopened
  bool several = false;  // optimizers: one for "first", one for the rest
  bool late = false;     // a rank that joins makes them behind its commit
  int32_t dies = -1;     // this id
  Moment when = Moment::kNever;
};

class Growing : NotCopied {
 public:
  static constexpr int64_t kGrows = 3, kDies = 5;
  int64_t steps = 8;
  std::function<void()> behind_commit;  // of a rank that joins, before it makes what it makes late

  /// `id` below 0: a replay. `joins`: the group exists, and its model has grown.
  Growing(const GrowingPlan& plan, int32_t id, bool joins = false) : plan_(plan), id_(id), joins_(joins) {
    auto options = defaults<ddp_group_options>();
    options.rank = is_replay() ? 0 : joins ? -1 : id;
    options.world_size = is_replay() ? 1 : joins ? -1 : plan.ranks;
    options.join = joins ? 1 : 0;
    if (!is_replay()) options.backend = plan_.backend;
    options.heartbeat_ms = 100;
    options.dead_after_ms = 10'000;
    options.timeout_ms = 20'000;
    options.recoverable = is_replay() ? 0 : 1;
    must(ddp_group_create(is_replay() ? "local://replay" : plan_.rendezvous.c_str(), &options, &group_));
    must(ddp_model_create(group_, nullptr, &model_));
    if (!is_replay() && !joins) add(gone_, "gone", nullptr);
    add(first_, "first", &index_of_first_);
    add(second_, "second", nullptr);
    if (joins) add(added_, "added", &index_of_added_);
    if (!plan_.late || !joins) make_all();
    if (!plan_.beside) return;
    must(ddp_model_create(group_, nullptr, &beside_));
    add(aside_, "aside", nullptr, beside_);
    make(beside_, &beside_optimizer_, nullptr);
    make_averages(beside_, &beside_ema_);
  }
  ~Growing() {
    for (ddp_ema* const each : {ema_, other_ema_, beside_ema_}) ddp_ema_destroy(each);
    for (ddp_optimizer* const each : {optimizer_, second_optimizer_, other_optimizer_, beside_optimizer_})
      ddp_optimizer_destroy(each);
    for (ddp_model* const each : {model_, other_, beside_}) ddp_model_destroy(each);
    ddp_group_destroy(group_);
  }

  /// Who made each step, and the hashes behind the last one. `at(step)` is called before each step.
  std::string run(const std::function<void(int64_t)>& at = {}) {
    // In the order of the last commits, so a rank that joins finds the model that was reopened behind the other.
    for (ddp_model* const each : {joins_ ? beside_ : model_, joins_ ? model_ : beside_})
      if (each != nullptr) repeat([&] { return ddp_model_commit(each, nullptr); });
    if (behind_commit) behind_commit();
    if (plan_.late && joins_) make_all();
    if (joins_) find_step();
    repeat([&] { return learn_members(); });
    while (step_ < steps) {
      if (at) at(step_);
      if (step_ == kGrows && index_of_added_ < 0) grow();
      if (step_ == kDies && id_ == plan_.dies && plan_.when == GrowingPlan::Moment::kGrown) std::raise(SIGKILL);
      const bool was_made = static_cast<int64_t>(story_.size()) > step_;  // and the step of the model beside was not
      ddp_status status = was_made ? DDP_OK : train(members_);
      if (status == DDP_OK && !was_made) story_.push_back(members_);
      if (status == DDP_OK) status = train_beside();
      if (status == DDP_OK) {
        ++step_;
        if (plan_.keeps) status = keep();
      }
      go_on(status);
    }
    repeat([&] { return ddp_group_barrier(group_); });
    return result();
  }

  /// The same by models that are never reopened.
  std::string replay(const std::vector<uint64_t>& story) {
    for (ddp_model* const each : {model_, beside_})
      if (each != nullptr) must(ddp_model_commit(each, nullptr));
    for (const uint64_t members : story) {
      if (step_ == kGrows) {
        must(ddp_model_create(group_, nullptr, &other_));
        add(added_, "added", &index_of_added_, other_);
        make(other_, &other_optimizer_, nullptr);
        make_averages(other_, &other_ema_);
        must(ddp_model_commit(other_, nullptr));
        must(ddp_ema_update(other_ema_, nullptr));
      }
      must(train(members));
      must(train_beside());
      ++step_;
    }
    story_ = story;
    return result();
  }

  [[nodiscard]] static std::vector<uint64_t> read_story(const std::string& text) {
    std::vector<uint64_t> story;
    for (size_t at = text.find('|'); at != std::string::npos && text[at + 1] != '#'; at = text.find('|', at + 1))
      story.push_back(std::stoull(text.substr(at + 1)));
    return story;
  }

  static void must(ddp_status status) {
    if (status != DDP_OK) throw Error(status, ddp_last_error());
  }
  [[nodiscard]] ddp_model* model() const noexcept { return model_; }
  [[nodiscard]] int32_t group_size() const noexcept { return ddp_group_get_size(group_); }
  void grow_until_commit() {
    repeat([&] { return ddp_model_reopen(model_, nullptr); });
    if (id_ == plan_.dies && plan_.when == GrowingPlan::Moment::kBuilding) std::raise(SIGKILL);
    must(ddp_model_remove_parameter(model_, 0));
    for (float& each : added_) each = id_ <= 1 ? 1.0F : 9.0F;  // rank 0's values are taken
    add(added_, "added", &index_of_added_);
  }
  void grow() {
    grow_until_commit();
    repeat([&] { return ddp_model_commit(model_, nullptr); });
    if (plan_.keeps) repeat([&] { return keep(); });
  }
  /// Until it succeeds, with recoveries between.
  template <class Call>
  void repeat(const Call& call) {
    for (ddp_status status = call(); status != DDP_OK; status = call()) go_on(status);
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

 private:
  [[nodiscard]] bool is_replay() const noexcept { return id_ < 0; }

  void add(std::vector<float>& value, const char* name, int32_t* out_index, ddp_model* to = nullptr) {
    must(ddp_model_add_array(to != nullptr ? to : model_, name, value.data(), nullptr, static_cast<int64_t>(value.size()),
                             out_index));
  }
  void make_all() {
    make(model_, &optimizer_, &second_optimizer_);
    make_averages(model_, &ema_);
  }
  void make(ddp_model* of, ddp_optimizer** out_optimizer, ddp_optimizer** out_second) const {
    auto options = defaults<ddp_optimizer_options>();
    options.shard = !is_replay() && plan_.shard ? 1 : 0;
    options.in_backward = !is_replay() && plan_.in_backward ? 1 : 0;
    if (plan_.several && out_second != nullptr) {
      must(ddp_optimizer_options_init(&options, sizeof options));
      options.parameters = &index_of_first_;
      options.parameter_count = 1;
      must(ddp_optimizer_create_adam(of, nullptr, &options, out_second));
      options.parameters = nullptr;
      options.parameter_count = 0;
      options.shard = plan_.shard ? 1 : 0;
      options.in_backward = plan_.in_backward ? 1 : 0;
    }
    must(ddp_optimizer_create_adam(of, nullptr, &options, out_optimizer));
  }
  static void make_averages(ddp_model* of, ddp_ema** out_ema) {
    const double decay = 0.875;
    must(ddp_ema_create(of, &decay, 1, out_ema));
  }

  ddp_status keep() {
    auto state = defaults<ddp_state>();
    state.model = model_;
    ddp_optimizer* const all[] = {second_optimizer_, optimizer_};
    state.optimizer = plan_.several ? nullptr : optimizer_;
    state.optimizers = plan_.several ? all : nullptr;
    state.optimizer_count = plan_.several ? 2 : 0;
    state.ema = ema_;
    return ddp_state_keep(&state, 1, nullptr);
  }

  [[nodiscard]] static float gradient_of(int32_t id, int64_t step, int64_t element) noexcept {
    return static_cast<float>((id * 7 + step * 3 + element) % 11 - 5);
  }
  [[nodiscard]] std::vector<int32_t> ids_of(uint64_t members) const {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < 64; ++id)
      if (is_replay() ? (members >> id & 1) != 0 : id == id_) ids.push_back(id);
    return ids;
  }
  ddp_status mark(ddp_model* of, int32_t index, const std::vector<int32_t>& ids) const {
    ddp_tensor grad;
    must(ddp_model_get_grad(of, index, &grad));
    for (int64_t i = 0; i < grad.shape[0]; ++i) {
      float sum = 0;
      for (const int32_t id : ids) sum += gradient_of(id, step_, i);
      static_cast<float*>(grad.data)[i] = sum / static_cast<float>(ids.size());
    }
    return ddp_model_mark_ready(of, index, nullptr);
  }
  ddp_status pass(ddp_model* of, const std::vector<int32_t>& indices, ddp_optimizer* optimizer, ddp_ema* ema,
                  const std::vector<int32_t>& ids) const {
    if (const ddp_status status = ddp_model_begin_backward(of, DDP_PASS_REDUCE); status != DDP_OK) return status;
    for (const int32_t index : indices)
      if (const ddp_status status = mark(of, index, ids); status != DDP_OK) return status;
    if (const ddp_status status = ddp_model_end_backward(of, nullptr); status != DDP_OK) return status;
    if (const ddp_status status = ddp_optimizer_step(optimizer, nullptr); status != DDP_OK) return status;
    ddp_optimizer* const second = of == model_ ? second_optimizer_ : nullptr;
    if (const ddp_status status = second != nullptr ? ddp_optimizer_step(second, nullptr) : DDP_OK; status != DDP_OK)
      return status;
    must(ddp_ema_update(ema, nullptr));
    return DDP_OK;
  }
  ddp_status train(uint64_t members) const {
    const std::vector<int32_t> ids = ids_of(members);
    std::vector<int32_t> indices = {index_of_first_ + 1, index_of_first_};
    if (!is_replay() && index_of_added_ < 0) indices.push_back(0);  // "gone"
    if (!is_replay() && index_of_added_ >= 0) indices.push_back(index_of_added_);
    ddp_status status = pass(model_, indices, optimizer_, ema_, ids);
    if (status != DDP_OK || other_ == nullptr) return status;
    return pass(other_, {0}, other_optimizer_, other_ema_, ids);
  }

  /// All ranks give it the same gradient, so a story of its own is not needed.
  ddp_status train_beside() const {
    return beside_ != nullptr ? pass(beside_, {0}, beside_optimizer_, beside_ema_, {0}) : DDP_OK;
  }
  /// A death or a joiner between the passes of two models leaves one of them a step ahead.
  void find_step() {
    must(ddp_optimizer_get_step_count(optimizer_, &step_));
    story_.resize(static_cast<size_t>(step_));
    int64_t beside = step_;
    if (beside_ != nullptr) must(ddp_optimizer_get_step_count(beside_optimizer_, &beside));
    step_ = std::min(step_, beside);
  }

  void go_on(ddp_status status) {
    while (status != DDP_OK) {
      if (status != DDP_ERROR_PEER_FAILED && status != DDP_ERROR_ABORTED && status != DDP_ERROR_TIMED_OUT) must(status);
      auto options = defaults<ddp_recover_options>();
      options.wait_ms = 10'000;
      must(ddp_group_recover(group_, &options, nullptr));
      find_step();
      status = learn_members();
    }
  }

  [[nodiscard]] static std::string hash_of(const std::vector<float>& values) {
    return std::to_string(content_hash(values.data(), values.size() * sizeof(float))) + " ";
  }
  [[nodiscard]] std::string hashes() const { return hash_of(first_) + hash_of(second_) + hash_of(added_) + hash_of(aside_); }
  [[nodiscard]] std::string result() const {
    std::string text = "story";
    for (const uint64_t members : story_) text += "|" + std::to_string(members);
    text += "|#" + hashes();
    must(ddp_ema_swap(ema_, 0, nullptr));
    for (ddp_ema* const each : {other_ema_, beside_ema_})
      if (each != nullptr) must(ddp_ema_swap(each, 0, nullptr));
    text += hashes();
    must(ddp_ema_swap(ema_, 0, nullptr));
    return text;
  }

  const GrowingPlan plan_;
  const int32_t id_;
  const bool joins_;
  std::vector<float> gone_ = std::vector<float>(300, 1.0F), first_ = std::vector<float>(5000, 1.0F),
                     second_ = std::vector<float>(7, 1.0F), added_ = std::vector<float>(40'000, 1.0F),
                     aside_ = std::vector<float>(900, 1.0F);
  int32_t index_of_first_ = -1, index_of_added_ = -1;
  ddp_group* group_ = nullptr;
  ddp_model *model_ = nullptr, *other_ = nullptr, *beside_ = nullptr;
  ddp_optimizer *optimizer_ = nullptr, *second_optimizer_ = nullptr, *other_optimizer_ = nullptr,
                *beside_optimizer_ = nullptr;
  ddp_ema *ema_ = nullptr, *other_ema_ = nullptr, *beside_ema_ = nullptr;
  int64_t step_ = 0;
  uint64_t members_ = 0;
  std::vector<uint64_t> story_;  // 0: before this rank joined
};

}  // namespace ddp::test
