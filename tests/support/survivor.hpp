// SPDX-License-Identifier: Apache-2.0
// A training whose ranks die: every rank continues through ddp_group_recover and notes who took part in each step, and a
// replay of those notes in one process gives the weights that must come out. Gradients are small integers and all factors
// powers of two, so each operation is exact or rounded once, whatever the order of the sum.
#pragma once

#include "ddp/experimental.h"
#include "parts/model_pass.hpp"
#include "support/defaults.hpp"
#include "support/group_procs.hpp"
#include "support/recovery_words.hpp"
#include "support/survivor_story.hpp"

namespace ddp::test {

enum class Update { kOwn, kSgd, kInBackward, kShard, kNoUndo, kKept, kKeptInBackward };

/// Sharded, and kept in the memory of the ranks (ddp_state_keep).
inline bool is_kept(Update update) noexcept { return update == Update::kKept || update == Update::kKeptInBackward; }

/// What a rank is about when a test strikes.
enum class State { kRendezvous, kCommit, kPass, kStep, kSave, kRecover, kKeep };

/// Ends a training of a length that is not known beforehand: in memory that all ranks share. Who sees first that the end was
/// asked for names a step that no rank can have passed, because each step needs all.
struct SurvivorEnding {
  std::atomic<bool> asked{false};
  std::atomic<int64_t> step{0};  // 0: not named yet
  [[nodiscard]] bool reached(int64_t now) noexcept {
    int64_t none = 0;
    if (asked) step.compare_exchange_strong(none, now + 2);
    return step != 0 && now >= step;
  }
};

struct Survival {
  std::string rendezvous;
  const ddp_store* store = nullptr;  // of store://
  int32_t ranks = 4;
  int32_t absent = -1;  // this id takes no part from the start on
  ddp_backend backend = DDP_BACKEND_AUTO;
  Update update = Update::kSgd;
  int64_t steps = 45;
  int64_t pause_ms = 5;  // what a step computes
  int64_t dead_after_ms = 1'000;
  int64_t rendezvous_timeout_ms = 120'000;
  ddp_recover_options rule{};
  int repeats = 0;  // of a recovery for which some rank lacks memory
  bool own_values = false;
  bool late_optimizer = false;  // a rank that joins makes it behind the commit
  int32_t virtual_ranks = 0;
  std::string save_path;  // a checkpoint after every `save_every` steps
  int64_t save_every = 0;
  int64_t keep_every = 1;                                  // steps, with kKept
  SurvivorEnding* ending = nullptr;                        // NULL: after `steps`
  std::function<void(ddp_group_options&)> asks;            // of a rank that is wrong: other options
  std::function<ddp_status(ddp_group*, ddp_model*)> adds;  // ... another model, or what it does in the place of its commit
  std::function<void(State)> enters;                       // may be empty
  std::function<void(int64_t, uint64_t members)> made;     // a step is made; may be empty
};

inline std::function<void(const std::string&)> to(Reporter& report) {
  return [&report](const std::string& line) { report.say(line); };
}

/// One rank of it.
class Survivor : NotCopied {
 public:
  /// `joins`: it is new, and the group exists.
  Survivor(const Survival& plan, int32_t id, std::function<void(const std::string&)> say, bool joins = false)
      : plan_(plan), id_(id), joins_(joins), say_(std::move(say)) {
    for (const int64_t size : kSizes) {
      weights_.emplace_back(static_cast<size_t>(size), 1.0F);
      momenta_.emplace_back(static_cast<size_t>(size), 0.0F);
    }
    enter(State::kRendezvous);
    must(create_group());
    const std::vector<int32_t> joined = ranks_of(group_, ddp_group_get_joined);
    expect((std::find(joined.begin(), joined.end(), ddp_group_get_rank(group_)) != joined.end()) == joins_,
           "a rank that joined");
    must(create_model());
  }
  ~Survivor() {
    ddp_optimizer_destroy(optimizer_);
    ddp_model_destroy(model_);
    ddp_group_destroy(group_);
  }

  /// The hash of the weights in a checkpoint, and its step.
  uint64_t load(const std::string& path, int64_t* step) {
    const ddp_state state = all_state();
    ddp_load_report report{};
    report.struct_size = sizeof report;
    const bool sharded = is_kept(plan_.update) || plan_.update == Update::kShard;  // it has its state after the commit
    if (sharded) must(ddp_model_commit(model_, nullptr));
    must(ddp_state_load_file(&state, path.c_str(), nullptr, &report));
    if (!sharded) must(ddp_model_commit(model_, nullptr));
    *step = report.step;
    return hash_of(values());
  }

  Story run() {
    say_("created");
    const auto commit = [&] {
      enter(State::kCommit);
      return ddp_model_commit(model_, nullptr);
    };
    bool knows_members = false;  // a recovery commits the model if any rank has
    for (ddp_status status = commit(); status != DDP_OK; status = commit()) knows_members = go_on(status);
    say_("committed");
    if (is_late()) must(create_optimizer());
    if (joins_ && optimizer_ != nullptr) must(ddp_optimizer_get_step_count(optimizer_, &step_));
    story_.members.resize(static_cast<size_t>(step_));  // 0, who made it, where that is not known
    if (!knows_members) go_on(learn_members());
    if (!joins_)
      for (ddp_status status = keep_first(); status != DDP_OK; status = keep_first()) go_on(status);
    while (plan_.ending == nullptr ? step_ < plan_.steps : !plan_.ending->reached(step_)) {
      ddp_status status = train_step();
      if (status == DDP_OK) {
        const uint64_t parts = (uint64_t{1} << plan_.virtual_ranks) - 1;
        story_.members.push_back(parts != 0 ? parts : members_);
        if (optimizer_ != nullptr) ++step_;
        hashes_[step_] = hash_of(values());
        if (plan_.made) plan_.made(step_, members_);
        if (plan_.ending == nullptr && step_ % 10 == 0) say_("step " + std::to_string(step_));
        if (plan_.save_every != 0 && step_ % plan_.save_every == 0) status = save();
        if (status == DDP_OK && step_ % plan_.keep_every == 0) status = keep();
      }
      go_on(status);
    }
    go_on(ddp_group_barrier(group_));
    story_.hash = hash_of(values());
    return story_;
  }

 private:
  static void must(ddp_status status) {
    if (status != DDP_OK) throw Error(status, ddp_last_error());
  }

  ddp_status create_group() {
    auto options = defaults<ddp_group_options>();
    const bool some_absent = plan_.absent >= 0;
    options.rank = some_absent && id_ > plan_.absent ? id_ - 1 : id_;
    options.world_size = plan_.ranks - (some_absent ? 1 : 0);
    options.backend = plan_.backend;
    options.heartbeat_ms = std::min<int64_t>(plan_.dead_after_ms / 5, 100);
    options.dead_after_ms = plan_.dead_after_ms;
    options.timeout_ms = 20'000;
    options.recoverable = 1;
    options.virtual_ranks = plan_.virtual_ranks;
    options.rendezvous_timeout_ms = plan_.rendezvous_timeout_ms;
    options.join = joins_ ? 1 : 0;
    options.store = plan_.store;
    if (joins_) options.rank = options.world_size = -1;
    if (plan_.asks) plan_.asks(options);
    return ddp_group_create(plan_.rendezvous.c_str(), &options, &group_);
  }

  ddp_status create_model() {
    auto options = defaults<ddp_model_options>();
    options.bucket_bytes = 100'000;
    options.own_values = plan_.own_values ? 1 : 0;
    must(ddp_model_create(group_, &options, &model_));
    for (size_t p = 0; p < weights_.size(); ++p) {
      ddp_tensor value;
      const auto count = static_cast<int64_t>(weights_[p].size());
      must(ddp_tensor_init(&value, weights_[p].data(), DDP_F32, 1, &count));
      must(ddp_model_add_parameter(model_, ("p" + std::to_string(p)).c_str(), &value, nullptr, nullptr));
    }
    if (plan_.adds) must(plan_.adds(group_, model_));
    if (plan_.update == Update::kOwn) must(add_own_state());
    if (plan_.update != Update::kOwn && !is_late()) must(create_optimizer());
    return DDP_OK;
  }

  /// As buffers: so a recovery sends it with the model.
  ddp_status add_own_state() {
    ddp_tensor tensor;
    const int64_t one = 1;
    must(ddp_tensor_init(&tensor, &step_, DDP_I64, 1, &one));
    must(ddp_model_add_buffer(model_, "step", &tensor, nullptr));
    for (size_t p = 0; p < momenta_.size(); ++p) {
      const auto count = static_cast<int64_t>(momenta_[p].size());
      must(ddp_tensor_init(&tensor, momenta_[p].data(), DDP_F32, 1, &count));
      must(ddp_model_add_buffer(model_, ("momentum" + std::to_string(p)).c_str(), &tensor, nullptr));
    }
    return DDP_OK;
  }

  [[nodiscard]] bool is_late() const { return joins_ && plan_.late_optimizer; }

  ddp_status create_optimizer() {
    auto options = defaults<ddp_optimizer_options>();
    auto rule = defaults<ddp_sgd_options>();
    const auto is_one_of = [this](std::initializer_list<Update> updates) {
      return std::find(updates.begin(), updates.end(), plan_.update) != updates.end() ? 1 : 0;
    };
    options.in_backward = is_one_of({Update::kInBackward, Update::kNoUndo, Update::kKeptInBackward});
    options.undo = 1 - is_one_of({Update::kNoUndo});
    options.shard = is_one_of({Update::kShard, Update::kKept, Update::kKeptInBackward});
    rule.rate = kRate;
    rule.momentum = kMomentum;
    return ddp_optimizer_create_sgd(model_, &rule, &options, &optimizer_);
  }

  /// Who are we, and are we at the same step with the same weights? An exchange of its own, as a program has them.
  ddp_status learn_members() {
    constexpr size_t kWords = 3;
    std::vector<int64_t> words(kWords * static_cast<size_t>(ddp_group_get_size(group_)));
    int64_t mine[kWords] = {id_, step_, static_cast<int64_t>(hash_of(values()))};
    const int64_t each = kWords;
    const auto all = static_cast<int64_t>(words.size());
    ddp_tensor input, output;
    must(ddp_tensor_init(&input, mine, DDP_I64, 1, &each));
    must(ddp_tensor_init(&output, words.data(), DDP_I64, 1, &all));
    const ddp_status status = ddp_group_all_gather(group_, &input, &output, nullptr);
    if (status != DDP_OK) return status;
    members_ = 0;
    ids_.clear();
    for (size_t at = 0; at < words.size(); at += kWords) {
      members_ |= uint64_t{1} << words[at];
      ids_.push_back(words[at]);
      expect(words[at + 1] == mine[1], "all are at step " + std::to_string(mine[1]) + ", but " + std::to_string(words[at]) +
                                           " is at " + std::to_string(words[at + 1]));
      if (plan_.update == Update::kNoUndo || is_torn_) continue;  // until a checkpoint is loaded: the pass reports it
      expect(words[at + 2] == mine[2], "all have the weights of id " + std::to_string(words[at]));
    }
    return DDP_OK;
  }

  [[nodiscard]] float* gradient_at(size_t parameter) const {
    ddp_tensor tensor;
    must(ddp_model_get_grad(model_, static_cast<int32_t>(parameter), &tensor));
    return static_cast<float*>(tensor.data);
  }

  [[nodiscard]] float* value_at(size_t parameter) const {
    ddp_tensor tensor;
    must(ddp_model_get_value(model_, static_cast<int32_t>(parameter), &tensor));
    return static_cast<float*>(tensor.data);
  }

  /// One part of the batch: this rank's, or one of its virtual ranks'.
  ddp_status run_pass(int32_t part, ddp_pass mode) {
    enter(State::kPass);
    if (const ddp_status status = ddp_model_begin_backward(model_, mode); status != DDP_OK) return status;
    for (size_t p = weights_.size(); p-- > 0;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(plan_.pause_ms) / weights_.size());
      auto* const gradient = gradient_at(p);
      for (size_t i = 0; i < weights_[p].size(); ++i) gradient[i] = gradient_of(part, step_, static_cast<int64_t>(i));
      if (const ddp_status status = ddp_model_mark_ready(model_, static_cast<int32_t>(p), nullptr); status != DDP_OK)
        return status;
    }
    return ddp_model_end_backward(model_, nullptr);
  }

  ddp_status run_passes() {
    if (plan_.virtual_ranks == 0) return run_pass(id_, DDP_PASS_REDUCE);
    ddp_virtual_ranks mine{};
    mine.struct_size = sizeof mine;
    must(ddp_group_get_virtual_ranks(group_, &mine));
    for (int32_t part = mine.first; part < mine.first + mine.count; ++part) {
      const bool is_last = part + 1 == mine.first + mine.count;
      if (const ddp_status status = run_pass(part, is_last ? DDP_PASS_REDUCE : DDP_PASS_PART); status != DDP_OK)
        return status;
    }
    return DDP_OK;
  }

  ddp_status train_step() {
    if (const ddp_status status = run_passes(); status != DDP_OK) return status;
    enter(State::kStep);
    if (optimizer_ != nullptr) return ddp_optimizer_step(optimizer_, nullptr);
    for (size_t p = 0; p < weights_.size(); ++p) {
      const float* const gradient = gradient_at(p);
      float* const value = value_at(p);
      for (size_t i = 0; i < weights_[p].size(); ++i) {
        momenta_[p][i] = kMomentum * momenta_[p][i] + gradient[i];
        value[i] -= kRate * momenta_[p][i];
      }
    }
    ++step_;
    return DDP_OK;
  }

  [[nodiscard]] ddp_state all_state() const {
    auto state = defaults<ddp_state>();
    state.model = model_;
    state.optimizer = optimizer_;
    state.step = step_;
    return state;
  }

  ddp_status save() {
    enter(State::kSave);
    const ddp_state state = all_state();
    return ddp_state_save_file(&state, plan_.save_path.c_str());
  }

  /// Before the first step, as a program does that has loaded nothing.
  ddp_status keep_first() { return step_ == 0 ? keep() : DDP_OK; }

  ddp_status keep() {
    if (!is_kept(plan_.update)) return DDP_OK;
    enter(State::kKeep);
    const ddp_state state = all_state();
    const ddp_status status = ddp_state_keep(&state, 1, nullptr);
    if (status == DDP_OK) whole_keep_ = std::exchange(last_keep_, step_);  // a death may have torn the last one
    return status;
  }

  void enter(State state) const {
    if (plan_.enters) plan_.enters(state);
  }

  /// A lack of memory, on any rank, changes nothing: the call may be repeated.
  ddp_status recover(ddp_recovery& recovery) {
    ddp_status status = ddp_group_recover(group_, &plan_.rule, &recovery);
    for (int again = 0; status == DDP_ERROR_OUT_OF_MEMORY && again < plan_.repeats; ++again) {
      say_(std::string("again: ") + ddp_last_error());
      status = ddp_group_recover(group_, &plan_.rule, &recovery);
    }
    return status;
  }

  /// Recovers after failures of the group, as often as needed; throws other errors. Gives true if there was a failure.
  bool go_on(ddp_status status) {
    if (status == DDP_OK) return false;
    while (status != DDP_OK) {
      if (status != DDP_ERROR_PEER_FAILED && status != DDP_ERROR_ABORTED && status != DDP_ERROR_TIMED_OUT) must(status);
      ddp_recovery recovery{};
      recovery.struct_size = sizeof recovery;
      enter(State::kRecover);
      const std::vector<int64_t> before = std::exchange(ids_, {});
      check_whereabouts(group_);
      must(recover(recovery));
      say_("recovered " + std::to_string(recovery.size) + " in " + std::to_string(recovery.seconds) + ", step " +
           std::to_string(recovery.step) + ", kept " + std::to_string(recovery.kept_step) + ", back " +
           std::to_string(recovery.went_back));
      if (optimizer_ != nullptr) must(ddp_optimizer_get_step_count(optimizer_, &step_));
      story_.members.resize(static_cast<size_t>(step_));
      is_torn_ = plan_.update == Update::kShard && recovery.step < 0;
      if (const auto known = hashes_.find(step_); known != hashes_.end() && recovery.step >= 0)
        expect(hash_of(values()) == known->second, "the weights that this rank had at step " + std::to_string(step_));
      status = learn_members();
      if (status == DDP_OK) check_words(before, recovery);
    }
    return true;
  }

  void check_words(const std::vector<int64_t>& before, const ddp_recovery& recovery) const {
    if (before.empty()) return;  // no rank of the group before has reported
    const size_t gone = check_who_is_there(group_, before, ids_);
    if (plan_.update == Update::kSgd || plan_.update == Update::kInBackward)
      expect_equal(recovery.step, step_, "the step that all have made");
    if (plan_.update == Update::kOwn) expect_equal(recovery.step, int64_t{-1}, "no optimizer counts");
    if (is_kept(plan_.update)) {
      expect_equal(recovery.step, step_, "the step to which all have gone back");
      expect(recovery.kept_step == -1 || recovery.kept_step == step_, "the step that was kept");
      expect(recovery.kept_step == -1 || recovery.kept_step >= whole_keep_, "not further than to the last keep");
    }
    if (plan_.update == Update::kShard && gone > 0 && step_ > 0) expect_equal(recovery.step, int64_t{-1}, "a part is lost");
  }

  [[nodiscard]] std::vector<std::vector<float>> values() const {
    std::vector<std::vector<float>> copies;
    for (size_t p = 0; p < weights_.size(); ++p) {
      const float* const first = value_at(p);
      copies.emplace_back(first, first + weights_[p].size());
    }
    return copies;
  }

  const Survival& plan_;
  const int32_t id_;
  const bool joins_;
  const std::function<void(const std::string&)> say_;
  std::vector<std::vector<float>> weights_, momenta_;
  ddp_group* group_ = nullptr;
  ddp_model* model_ = nullptr;
  ddp_optimizer* optimizer_ = nullptr;
  uint64_t members_ = 0;
  std::vector<int64_t> ids_;  // by rank; empty while not known
  int64_t step_ = 0;
  bool is_torn_ = false;  // a checkpoint has to be loaded
  Story story_;
  int64_t last_keep_ = -1;              // the step of the last that did not fail on this rank
  int64_t whole_keep_ = -1;             // and of the one before
  std::map<int64_t, uint64_t> hashes_;  // of the weights, by step
};

}  // namespace ddp::test
