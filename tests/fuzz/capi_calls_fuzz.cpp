// SPDX-License-Identifier: Apache-2.0
// Any bytes as a program: calls of the public API, right and wrong ones, made by one rank or by two that are threads. A call
// returns a documented status and no INTERNAL, a failure has a text, two ranks that make the same calls get the same
// answers, and hold the same parameters in the end. A byte selects a call, the next ones are its arguments; missing bytes
// are 0.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp/experimental.h"
#include "fuzz/survival_calls.hpp"

namespace {

constexpr size_t kLongestProgram = 400;  // bytes; a call takes microseconds, a commit of two ranks a millisecond
constexpr int32_t kParameters = 4;

void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s; the last error was \"%s\"\n", what, ddp_last_error());
  std::abort();
}

/// What one rank did: the status of each call, and a hash of its parameters where the ranks must agree.
using Answers = std::vector<int64_t>;

struct Shared {
  explicit Shared(uint8_t bits) : ends(1 + bits % 2), virtual_ranks(bits / 2 == 1 ? 4 : 0) {}
  std::atomic<bool> aborted{false};  // the program has asked for it
  std::barrier<> ends;               // a thread that leaves the group early would fail the others' last calls
  const int32_t virtual_ranks;
};

class Rank {
 public:
  Rank(const uint8_t* bytes, size_t size, int32_t rank, int32_t ranks, const std::string& place, Shared& shared)
      : at_(bytes),
        end_(bytes + size),
        rank_(rank),
        ranks_(ranks),
        place_(place),
        shared_(shared),
        aborted_(shared.aborted) {}

  Answers run() {
    create_group();
    while (at_ < end_) call(next() % (44 + ddp_fuzz::kSurvivalCalls));
    finish();
    return std::move(answers_);
  }

 private:
  uint8_t next() { return at_ < end_ ? *at_++ : 0; }
  double number() {
    static constexpr double kNumbers[] = {0, 1, 0.5, -1, 1e-3, 1e30, 2, 0.9};
    return kNumbers[next() % 8];
  }

  ddp_status note(ddp_status status) {
    must(status >= DDP_OK && status < DDP_ERROR_INTERNAL, "a documented status that is no defect");
    must(status == DDP_OK || std::strlen(ddp_last_error()) > 0, "a failure has a text");
    must(status != DDP_ERROR_TIMED_OUT && status != DDP_ERROR_PEER_FAILED, "nobody is late and nobody has died");
    must(aborted_ || status != DDP_ERROR_ABORTED, "nobody has aborted the group");
    answers_.push_back(status);
    return status;
  }

  void create_group() {
    ddp_group_options options;
    ddp_group_options_init(&options, sizeof options);
    options.rank = rank_;
    options.world_size = ranks_;
    options.timeout_ms = 20'000;
    options.virtual_ranks = shared_.virtual_ranks;
    note(ddp_group_create(place_.c_str(), &options, &group_));
    must(group_ != nullptr, "a group");
  }

  void create_model() {
    ddp_model_options options;
    ddp_model_options_init(&options, sizeof options);
    const uint8_t bits = next();
    options.first_bucket_bytes = 64;
    options.bucket_bytes = 256;
    options.unused = (bits & 1) != 0 ? DDP_UNUSED_ALLOW : DDP_UNUSED_ERROR;
    options.divisor = (bits & 2) != 0 ? DDP_DIVISOR_WEIGHTS : DDP_DIVISOR_WORLD;
    options.reduce = (bits & 4) != 0 ? DDP_SUM : DDP_AVERAGE;
    options.progress = (bits & 8) != 0 ? DDP_PROGRESS_THREAD : DDP_PROGRESS_CALLER;
    options.check_every = (bits & 16) != 0 ? 2 : 0;
    options.drift = (bits & 32) != 0 ? DDP_DRIFT_RESEND : DDP_DRIFT_REPORT;
    options.uneven_inputs = (bits & 64) != 0 ? 1 : 0;
    if ((bits & 128) != 0) options.wire = DDP_BF16;
    destroy_model();
    note(ddp_model_create(group_, &options, &model_));
    static constexpr ddp_dtype kTypes[] = {DDP_F32, DDP_F64, DDP_F16, DDP_BF16};
    static constexpr int64_t kBytes[] = {4, 8, 2, 2};
    const uint8_t shape = next();
    for (int32_t i = 0; i < kParameters; ++i) {
      const size_t type = (shape >> i & 1) != 0 ? next() % 4 : 0;
      const int64_t count = next() % 60;
      values_[i].assign(static_cast<size_t>(count * kBytes[type]), 0);
      grads_[i].assign(values_[i].size(), 0);
      for (size_t at = 0; at < values_[i].size(); ++at)
        values_[i][at] = static_cast<uint8_t>((at * 7 + static_cast<size_t>(i)) % 60);
      ddp_tensor value, grad;
      ddp_tensor_init(&value, values_[i].data(), kTypes[type], 1, &count);
      ddp_tensor_init(&grad, grads_[i].data(), kTypes[type], 1, &count);
      const std::string name = "p" + std::to_string(i);
      note(ddp_model_add_parameter(model_, name.c_str(), &value, (shape >> 4 & 1) != 0 ? nullptr : &grad, nullptr));
    }
    buffer_.assign(3, static_cast<float>(rank_));
    const int64_t three = 3;
    ddp_tensor buffer;
    ddp_tensor_init(&buffer, buffer_.data(), DDP_F32, 1, &three);
    note(ddp_model_add_buffer(model_, "b", &buffer, nullptr));
    if (next() % 4 == 2) {
      ddp_powersgd_options powersgd;
      ddp_powersgd_options_init(&powersgd, sizeof powersgd);
      powersgd.start_pass = next() % 3;
      note(ddp_model_set_hook(model_, ddp_hook_powersgd, &powersgd, nullptr));
    }
    if (next() % 4 != 3) note(ddp_model_commit(model_, nullptr));
  }

  void create_optimizer() {
    destroy_optimizer();
    const uint8_t bits = next();
    ddp_optimizer_options shared;
    ddp_optimizer_options_init(&shared, sizeof shared);
    const auto fill = [&](auto& options) {
      shared.shard = bits & 1;
      shared.in_backward = bits >> 1 & 1;
      shared.undo = bits >> 2 & 1;
      shared.master_weights = bits >> 3 & 1;
      shared.nonfinite = static_cast<ddp_nonfinite>(bits >> 4 & 3);
      shared.max_norm = (bits >> 6 & 1) != 0 ? number() : 0;
      shared.clip_value = (bits >> 7 & 1) != 0 ? number() : 0;
      options.rate = number();
    };
    if (next() % 2 == 0) {
      ddp_sgd_options options;
      ddp_sgd_options_init(&options, sizeof options);
      fill(options);
      options.momentum = number();
      note(ddp_optimizer_create_sgd(model_, &options, &shared, &optimizer_));
    } else {
      ddp_adam_options options;
      ddp_adam_options_init(&options, sizeof options);
      fill(options);
      note(ddp_optimizer_create_adam(model_, &options, &shared, &optimizer_));
    }
  }

  void write_gradients() {
    const uint8_t seed = next();
    for (int32_t i = 0; i < kParameters; ++i) {
      ddp_tensor grad;
      if (ddp_model_get_grad(model_, i, &grad) != DDP_OK) continue;
      auto* bytes = static_cast<uint8_t*>(grad.data);
      const int64_t size = static_cast<int64_t>(values_[i].size());
      for (int64_t at = 0; at < size && bytes != nullptr; ++at) bytes[at] = static_cast<uint8_t>((seed + at + rank_) % 61);
    }
    reduced_ = false;
  }

  void begin(ddp_pass mode) {
    if (note(ddp_model_begin_backward(model_, mode)) != DDP_OK) return;
    mode_ = mode;
    open_ = true;
  }

  void end() {
    open_ = false;
    if (note(ddp_model_end_backward(model_, nullptr)) == DDP_OK && mode_ == DDP_PASS_REDUCE) reduced_ = true;
  }

  void state(uint8_t which) {
    ddp_state state;
    ddp_state_init(&state, sizeof state);
    state.model = model_;
    const uint8_t bits = next();
    if ((bits & 1) != 0) state.optimizer = optimizer_;
    if ((bits & 2) != 0) state.ema = ema_;
    ddp_load_options mode;
    ddp_load_options_init(&mode, sizeof mode);
    mode.partial = bits >> 2 & 1;
    mode.local = ranks_ == 1 ? bits >> 3 & 1 : 0;  // of two ranks only rank 0 has what was saved
    if (which == 0) {
      saved_.clear();
      note(ddp_state_save(
          &state,
          [](void* self, const void* data, int64_t bytes) -> int32_t {
            auto& saved = static_cast<Rank*>(self)->saved_;
            const auto* begin = static_cast<const uint8_t*>(data);
            saved.insert(saved.end(), begin, begin + bytes);
            return 0;
          },
          this));
    } else {
      read_ = 0;
      note(ddp_state_load(
          &state,
          [](void* self, void* data, int64_t capacity) -> int64_t {
            auto& me = *static_cast<Rank*>(self);
            const int64_t bytes = std::min(capacity, static_cast<int64_t>(me.saved_.size() - me.read_));
            if (bytes > 0) std::memcpy(data, me.saved_.data() + me.read_, static_cast<size_t>(bytes));
            me.read_ += static_cast<size_t>(bytes);
            return bytes;
          },
          this, &mode, nullptr));
    }
  }

  void collective(uint8_t which) {
    float numbers[8] = {1, 2, 3, 4, 5, 6, 7, static_cast<float>(rank_)};
    float more[16] = {};
    const int64_t four = 4;
    int64_t all = four * ranks_;
    ddp_tensor input, output;
    ddp_tensor_init(&input, numbers, DDP_F32, 1, &four);
    ddp_tensor_init(&output, more, DDP_F32, 1, &all);
    const auto op = static_cast<ddp_reduce>(next() % 5);
    switch (which) {
      case 0: note(ddp_group_barrier(group_)); break;
      case 1: note(ddp_group_all_reduce(group_, &input, op, nullptr)); break;
      case 2: note(ddp_group_all_gather(group_, &input, &output, nullptr)); break;
      case 3: note(ddp_group_reduce_scatter(group_, &output, &input, op, nullptr)); break;
      case 4: note(ddp_group_broadcast(group_, &input, next() % 3 - 1, nullptr)); break;
      default: {
        double metrics[2] = {1.5, static_cast<double>(rank_)};
        note(ddp_group_reduce_metrics(group_, metrics, 2, op));
      }
    }
  }

  /// The first calls are about a model and its passes, the others about the rest.
  void call(uint8_t which) {
    if (which < 21) return call_model(which);
    if (which < 44) return call_others(which);
    ddp_fuzz::call_survival(
        group_, static_cast<uint8_t>(which - 44), [&] { return next(); }, [&](auto s) { note(s); });
  }

  void call_model(uint8_t which) {
    double norm = 0;
    switch (which) {
      case 0: return create_model();
      case 1: return create_optimizer();
      case 2: return write_gradients();
      case 3: return begin(static_cast<ddp_pass>(next() % 4));
      case 4: return static_cast<void>(note(ddp_model_mark_ready(model_, next() % (kParameters + 1), nullptr)));
      case 5: return static_cast<void>(note(ddp_model_mark_unused(model_, next() % kParameters)));
      case 6: return end();
      case 7:
        if (note(ddp_optimizer_step(optimizer_, nullptr)) == DDP_OK && !reduced_) agree_ = false;
        return;
      case 8:  // a whole pass
        begin(DDP_PASS_REDUCE);
        for (int32_t i = 0; i < kParameters; ++i) note(ddp_model_mark_ready(model_, i, nullptr));
        return end();
      case 9: return static_cast<void>(note(ddp_model_skip_backward(model_, nullptr)));
      case 10: open_ = false; return static_cast<void>(note(ddp_model_abandon_backward(model_, "no reason", nullptr)));
      case 11: return static_cast<void>(note(ddp_model_zero_grad(model_, nullptr)));
      case 12: return static_cast<void>(note(ddp_model_scale_grad(model_, number(), nullptr)));
      case 13: return static_cast<void>(note(ddp_model_clip_grad_norm(model_, number(), number(), &norm, nullptr)));
      case 14: return static_cast<void>(note(ddp_model_clip_grad_value(model_, number(), nullptr)));
      case 15: return static_cast<void>(note(ddp_model_get_grad_norm(model_, number(), &norm, nullptr)));
      case 16: return static_cast<void>(note(ddp_model_sync_buffers(model_, next() % 3 - 1, nullptr)));
      case 17: return static_cast<void>(note(ddp_model_check_replicas(model_, nullptr)));
      case 18: return static_cast<void>(note(ddp_model_average_parameters(model_, nullptr)));
      case 19: return static_cast<void>(note(ddp_model_set_weight(model_, number())));
      case 20: return static_cast<void>(note(ddp_model_set_last_pass(model_)));
      default: break;
    }
  }

  void call_others(uint8_t which) {
    int64_t count = 0;
    switch (which) {
      case 21: {
        const double decays[2] = {0.9, number()};
        ddp_ema_destroy(std::exchange(ema_, nullptr));
        return static_cast<void>(note(ddp_ema_create(model_, decays, 1 + next() % 2, &ema_)));
      }
      case 22: return static_cast<void>(note(ddp_ema_update(ema_, nullptr)));
      case 23: return static_cast<void>(note(ddp_ema_swap(ema_, next() % 3, nullptr)));
      case 24: return state(0);
      case 25: return state(1);
      case 26: return static_cast<void>(note(ddp_optimizer_set_rate(optimizer_, number())));
      case 27:
        return static_cast<void>(
            note(ddp_optimizer_set_parameter_options(optimizer_, next() % (kParameters + 1) - 1, number(), number())));
      case 28: {
        ddp_loss_scale_options options;
        ddp_loss_scale_options_init(&options, sizeof options);
        options.initial = number();
        options.interval = next() % 3;
        return static_cast<void>(note(ddp_optimizer_set_loss_scale(optimizer_, &options)));
      }
      case 29: return static_cast<void>(note(ddp_optimizer_get_step_count(optimizer_, &count)));
      case 30:
      case 31:
      case 32:
      case 33:
      case 34:
      case 35: return collective(static_cast<uint8_t>(which - 30));
      case 36: return destroy_model();
      case 37: return destroy_optimizer();
      case 38: return ddp_ema_destroy(std::exchange(ema_, nullptr));
      case 39: {
        void* memory = nullptr;
        if (note(ddp_group_alloc(group_, next() * 16, &memory)) == DDP_OK) note(ddp_group_free(group_, memory));
        return;
      }
      case 40: {
        int64_t rows = 0;
        int64_t indices[2] = {next() % 4, next() % 4};
        float values[4] = {1, 2, 3, 4};
        const int64_t two = 2, shape[2] = {2, 2};
        ddp_tensor index, row;
        ddp_tensor_init(&index, indices, DDP_I64, 1, &two);
        ddp_tensor_init(&row, values, DDP_F32, 2, shape);
        return static_cast<void>(note(ddp_group_all_reduce_rows(group_, &index, &row, DDP_SUM, &rows, nullptr)));
      }
      case 41: return static_cast<void>(note(ddp_model_commit(model_, nullptr)));
      case 42: {
        char text[64];
        return static_cast<void>(note(ddp_model_describe_plan(model_, text, next() % 65, &count)));
      }
      default:
        if (next() != 0xab) return;  // rarely: it ends everything
        aborted_ = true;
        note(ddp_group_abort(group_, "the program says so"));
    }
  }

  void destroy_model() {
    if (std::exchange(open_, false)) aborted_ = true;  // the others would wait for this rank
    ddp_model_destroy(std::exchange(model_, nullptr));
  }
  void destroy_optimizer() { ddp_optimizer_destroy(std::exchange(optimizer_, nullptr)); }

  void finish() {
    // Parameters are the same on all ranks, unless the program stepped with gradients that no pass had reduced.
    int64_t hash = 0;
    if (ranks_ > 1 && ddp_model_get_hash(model_, &hash) == DDP_OK && agree_) answers_.push_back(hash);
    shared_.ends.arrive_and_wait();
    ddp_optimizer_destroy(optimizer_);
    ddp_ema_destroy(ema_);
    destroy_model();
    ddp_group_destroy(group_);
  }

  const uint8_t* at_;
  const uint8_t* end_;
  const int32_t rank_, ranks_;
  const std::string place_;
  Shared& shared_;
  std::atomic<bool>& aborted_;
  ddp_group* group_ = nullptr;
  ddp_model* model_ = nullptr;
  ddp_optimizer* optimizer_ = nullptr;
  ddp_ema* ema_ = nullptr;
  std::vector<uint8_t> values_[kParameters], grads_[kParameters];
  std::vector<float> buffer_;
  std::vector<uint8_t> saved_;
  size_t read_ = 0;
  ddp_pass mode_ = DDP_PASS_REDUCE;  // of the last pass
  bool open_ = false;
  bool reduced_ = true;  // the gradients are the same on all ranks
  bool agree_ = true;    // and so are the parameters
  Answers answers_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > kLongestProgram) return 0;
  must(ddp_set_log(DDP_LOG_OFF, nullptr, nullptr) == DDP_OK, "no log");
  static std::atomic<int64_t> count{0};
  const std::string place = "local://calls" + std::to_string(++count);
  Shared shared(data[0]);
  if (data[0] % 2 == 0) {
    Rank(data + 1, size - 1, 0, 1, place, shared).run();
    return 0;
  }
  Answers theirs;
  std::thread other([&] { theirs = Rank(data + 1, size - 1, 1, 2, place, shared).run(); });
  const Answers mine = Rank(data + 1, size - 1, 0, 2, place, shared).run();
  other.join();
  must(shared.aborted || mine == theirs, "two ranks that make the same calls get the same answers");  // an abort takes time
  return 0;
}
