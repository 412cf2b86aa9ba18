// SPDX-License-Identifier: Apache-2.0
// Every public function that takes a handle, each with arguments that it would accept, and whether it refused the handle as
// it documents: the handle of a parent in its fork, or what is no handle.
// lint/handle_calls_test.py compares the list with the headers, so that a new function cannot be forgotten.
#pragma once

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "ddp/experimental.h"

namespace ddp::test {

struct Handles {
  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  ddp_optimizer* optimizer = nullptr;
  ddp_ema* ema = nullptr;
  ddp_bucket* bucket = nullptr;
  ddp_outer* outer = nullptr;
  ddp_request* request = nullptr;
};

struct HandleCall {
  const char* name;
  std::function<bool(const Handles&)> is_refused;
};

namespace handle_calls {

/// How a call is refused: that of a fork.
inline ddp_status wanted = DDP_ERROR_INVALID_STATE;
inline bool refused(ddp_status status) { return status == wanted; }
inline bool refused(int32_t value) { return value == -1; }
inline bool refused(int64_t value) { return value == 0; }
inline bool refused(ddp_backend backend) { return backend == DDP_BACKEND_AUTO; }
inline bool refused(const char* text) { return text == nullptr; }

/// Somewhere to read from and to write to.
struct Memory {
  float values[4] = {1, 2, 3, 4};
  int64_t rows[4] = {0, 1, 2, 3};
  double numbers[4] = {0.5, 1, 2, 3};
  ddp_tensor tensor = make_tensor(values, DDP_F32);
  ddp_tensor indices = make_tensor(rows, DDP_I64);
  char text[256] = "";
  int32_t index = 0, found = 0;
  int64_t count = 0;
  const char* string = nullptr;
  void* address = nullptr;
  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  ddp_optimizer* optimizer = nullptr;
  ddp_ema* ema = nullptr;
  ddp_bucket* bucket = nullptr;
  ddp_outer* outer = nullptr;
  ddp_request* request = nullptr;
  ddp_outer_stats outer_stats{};
  ddp_model_stats stats{};
  ddp_pass_report report{};
  ddp_loss_scale_options scale{};
  ddp_state state{};
  ddp_rank_progress progress{};
  ddp_virtual_ranks virtual_ranks{};
  ddp_recovery recovery{};
  Memory() {
    stats.struct_size = sizeof stats;
    report.struct_size = sizeof report;
    progress.struct_size = sizeof progress;
    virtual_ranks.struct_size = sizeof virtual_ranks;
    recovery.struct_size = sizeof recovery;
    (void)ddp_loss_scale_options_init(&scale, sizeof scale);
    (void)ddp_state_init(&state, sizeof state);
  }
  /// What calls give is as before.
  [[nodiscard]] bool is_untouched() const {
    for (const void* const given :
         std::initializer_list<const void*>{string, address, group, model, optimizer, ema, bucket, outer, request})
      if (given != nullptr) return false;
    return values[0] == 1 && numbers[0] == 0.5 && text[0] == '\0' && index == 0 && found == 0 && count == 0;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    ddp_outer_destroy(outer);
    ddp_ema_destroy(ema);
    ddp_optimizer_destroy(optimizer);
    ddp_model_destroy(model);
    ddp_group_destroy(group);
  }

 private:
  static ddp_tensor make_tensor(void* data, ddp_dtype dtype) { return ddp_tensor{data, dtype, DDP_CPU, 0, 1, {4}}; }
};

/// A call that is not refused may lend it to the object, which outlives the call. `of_last`: that of the last call.
inline Memory& lasting_memory(bool of_last = false) {
  static thread_local std::deque<Memory> all;
  return of_last ? all.back() : all.emplace_back();
}

inline int32_t update(void*, const ddp_update_slice*) { return 0; }
inline int32_t write(void*, const void*, int64_t) { return 0; }
inline int64_t read(void*, void*, int64_t) { return 0; }

}  // namespace handle_calls

#define DDP_CALL(function, ...)                                                                          \
  HandleCall {                                                                                           \
#function, [](const Handles& h) {                                                                      \
      [[maybe_unused]] handle_calls::Memory& m = handle_calls::lasting_memory();                       \
      [[maybe_unused]] void* const no_stream = nullptr;                                                \
      [[maybe_unused]] const auto state = [&]() { m.state.model = h.model; return &m.state; };         \
      return handle_calls::refused(function(__VA_ARGS__));                                             \
    } \
  }
#define DDP_DESTROY(function, ...)   \
  HandleCall {                       \
#function, [](const Handles& h) {  \
      function(__VA_ARGS__);       \
      return true;                 \
    } \
  }
#define DDP_HOOK(function, ...)                                                               \
  HandleCall {                                                                                \
#function, [](const Handles& h) { return function(__VA_ARGS__) == handle_calls::wanted; } \
  }

inline const std::vector<HandleCall> all_handle_calls = {
    DDP_CALL(ddp_group_abort, h.group, "a test"),
    DDP_CALL(ddp_group_start_trace, h.group, "", nullptr),
    DDP_CALL(ddp_group_stop_trace, h.group),
    DDP_CALL(ddp_group_log_metric, h.group, "loss", 1),
    DDP_CALL(ddp_group_split, h.group, 0, 0, nullptr, &m.group),
    DDP_CALL(ddp_group_status, h.group),
    DDP_CALL(ddp_group_get_rank, h.group),
    DDP_CALL(ddp_group_get_size, h.group),
    DDP_CALL(ddp_group_get_number, h.group),
    DDP_CALL(ddp_group_get_backend, h.group),
    DDP_CALL(ddp_group_get_waits, h.group, m.numbers, 1, &m.found),
    DDP_CALL(ddp_group_barrier, h.group),
    DDP_CALL(ddp_model_wait_value, h.model, 0, no_stream),
    DDP_CALL(ddp_model_wait_values, h.model),
    DDP_CALL(ddp_model_value_ready, h.model, 0),
    DDP_CALL(ddp_group_all_reduce, h.group, &m.tensor, DDP_SUM, no_stream),
    DDP_CALL(ddp_group_all_gather, h.group, &m.tensor, &m.tensor, no_stream),
    DDP_CALL(ddp_group_reduce_scatter, h.group, &m.tensor, &m.tensor, DDP_SUM, no_stream),
    DDP_CALL(ddp_group_broadcast, h.group, &m.tensor, 0, no_stream),
    DDP_CALL(ddp_group_send, h.group, &m.tensor, 1, 0, no_stream),
    DDP_CALL(ddp_group_receive, h.group, &m.tensor, 1, 0, &m.found, no_stream),
    DDP_CALL(ddp_group_reduce, h.group, &m.tensor, DDP_SUM, 0, no_stream),
    DDP_CALL(ddp_group_gather, h.group, &m.tensor, &m.tensor, 0, no_stream),
    DDP_CALL(ddp_group_scatter, h.group, &m.tensor, &m.tensor, 0, no_stream),
    DDP_CALL(ddp_group_all_to_all, h.group, &m.tensor, &m.tensor, nullptr, nullptr, no_stream),
    DDP_CALL(ddp_group_all_gather_counts, h.group, &m.tensor, &m.tensor, m.rows, no_stream),
    DDP_CALL(ddp_group_post_barrier, h.group, &m.request),
    DDP_CALL(ddp_group_post_all_reduce, h.group, &m.tensor, DDP_SUM, &m.request, no_stream),
    DDP_CALL(ddp_group_post_all_gather, h.group, &m.tensor, &m.tensor, &m.request, no_stream),
    DDP_CALL(ddp_group_post_reduce_scatter, h.group, &m.tensor, &m.tensor, DDP_SUM, &m.request, no_stream),
    DDP_CALL(ddp_group_post_broadcast, h.group, &m.tensor, 0, &m.request, no_stream),
    DDP_CALL(ddp_group_post_reduce, h.group, &m.tensor, DDP_SUM, 0, &m.request, no_stream),
    DDP_CALL(ddp_group_post_gather, h.group, &m.tensor, &m.tensor, 0, &m.request, no_stream),
    DDP_CALL(ddp_group_post_scatter, h.group, &m.tensor, &m.tensor, 0, &m.request, no_stream),
    DDP_CALL(ddp_group_post_all_to_all, h.group, &m.tensor, &m.tensor, nullptr, nullptr, &m.request, no_stream),
    DDP_CALL(ddp_group_post_all_gather_counts, h.group, &m.tensor, &m.tensor, m.rows, &m.request, no_stream),
    DDP_CALL(ddp_group_post_send, h.group, &m.tensor, 1, 0, &m.request, no_stream),
    DDP_CALL(ddp_group_post_receive, h.group, &m.tensor, 1, 0, &m.request, no_stream),
    DDP_CALL(ddp_request_test, h.request, &m.found),
    DDP_CALL(ddp_request_wait, h.request, -1, &m.found),
    DDP_CALL(ddp_request_get_id, h.request),
    DDP_CALL(ddp_request_get_source, h.request),
    DDP_DESTROY(ddp_request_destroy, h.request),
    DDP_CALL(ddp_group_reduce_metrics, h.group, m.numbers, 4, DDP_SUM),
    DDP_CALL(ddp_group_all_reduce_rows, h.group, &m.indices, &m.tensor, DDP_SUM, &m.count, no_stream),
    DDP_CALL(ddp_group_get_rows, h.group, &m.indices, &m.tensor),
    DDP_CALL(ddp_group_alloc, h.group, 64, &m.address),
    DDP_CALL(ddp_group_free, h.group, nullptr),
    DDP_CALL(ddp_group_share, h.group, &m.address, 8),
    DDP_CALL(ddp_group_unshare, h.group, nullptr),
    DDP_CALL(ddp_group_get_failed, h.group, &m.index, 1, &m.found),
    DDP_CALL(ddp_group_get_gone, h.group, &m.index, 1, &m.found),
    DDP_CALL(ddp_group_get_joined, h.group, &m.index, 1, &m.found),
    DDP_CALL(ddp_group_get_kept, h.group, nullptr, 0, &m.count),
    DDP_CALL(ddp_group_get_renumbered, h.group, &m.index, 1, &m.found),
    DDP_CALL(ddp_group_get_progress, h.group, 0, &m.progress),
    DDP_CALL(ddp_group_get_virtual_ranks, h.group, &m.virtual_ranks),
    DDP_CALL(ddp_group_reduce_part_metrics, h.group, m.numbers, 1, DDP_SUM),
    DDP_CALL(ddp_group_recover, h.group, nullptr, &m.recovery),
    DDP_CALL(ddp_batch_norm_forward, h.group, nullptr, &m.tensor, nullptr, nullptr, nullptr, nullptr, &m.tensor, nullptr,
             nullptr, nullptr, no_stream),
    DDP_CALL(ddp_batch_norm_backward, h.group, nullptr, &m.tensor, &m.tensor, nullptr, &m.tensor, &m.tensor, 4, &m.tensor,
             nullptr, nullptr, no_stream),
    DDP_CALL(ddp_model_create, h.group, nullptr, &m.model),
    DDP_CALL(ddp_model_add_array, h.model, "array", m.values, nullptr, 4, &m.index),
    DDP_CALL(ddp_model_add_parameter, h.model, "p", &m.tensor, nullptr, &m.index),
    DDP_CALL(ddp_model_add_parameter_without_grad, h.model, "l", &m.tensor, &m.index),
    DDP_CALL(ddp_model_add_buffer, h.model, "b", &m.tensor, &m.index),
    DDP_CALL(ddp_model_commit, h.model, no_stream),
    DDP_CALL(ddp_model_get_parameter_count, h.model),
    DDP_CALL(ddp_model_get_grad, h.model, 0, &m.tensor),
    DDP_CALL(ddp_model_get_value, h.model, 0, &m.tensor),
    DDP_CALL(ddp_model_set_buckets, h.model, &m.index, 1),
    DDP_CALL(ddp_model_reopen, h.model, no_stream),
    DDP_CALL(ddp_model_remove_parameter, h.model, 0),
    DDP_CALL(ddp_model_remove_buffer, h.model, 0),
    DDP_CALL(ddp_model_set_grad, h.model, 0, &m.tensor),
    DDP_CALL(ddp_model_sync_buffers, h.model, 0, no_stream),
    DDP_CALL(ddp_model_check_replicas, h.model, no_stream),
    DDP_CALL(ddp_model_get_hash, h.model, &m.count),
    DDP_CALL(ddp_model_get_stats, h.model, &m.stats),
    DDP_CALL(ddp_model_describe_plan, h.model, m.text, sizeof m.text, &m.count),
    DDP_CALL(ddp_model_begin_backward, h.model, DDP_PASS_REDUCE),
    DDP_CALL(ddp_model_mark_ready, h.model, 1, no_stream),
    DDP_CALL(ddp_model_mark_range_ready, h.model, 1, 0, 1, no_stream),
    DDP_CALL(ddp_model_mark_unused, h.model, 1),
    DDP_CALL(ddp_model_end_backward, h.model, no_stream),
    DDP_CALL(ddp_model_was_used, h.model, 0),
    DDP_CALL(ddp_model_average_parameters, h.model, no_stream),
    DDP_CALL(ddp_model_zero_grad, h.model, no_stream),
    DDP_CALL(ddp_model_mark_reduced, h.model),
    DDP_CALL(ddp_model_get_grad_norm, h.model, 2, m.numbers, no_stream),
    DDP_CALL(ddp_model_clip_grad_norm, h.model, 1, 2, m.numbers, no_stream),
    DDP_CALL(ddp_model_clip_grad_value, h.model, 1, no_stream),
    DDP_CALL(ddp_model_scale_grad, h.model, 2, no_stream),
    DDP_CALL(ddp_model_set_weight, h.model, 2),
    DDP_CALL(ddp_model_set_last_pass, h.model),
    DDP_CALL(ddp_model_skip_backward, h.model, no_stream),
    DDP_CALL(ddp_model_abandon_backward, h.model, "a test", no_stream),
    DDP_CALL(ddp_model_get_pass_report, h.model, &m.report),
    DDP_CALL(ddp_model_get_absent, h.model, nullptr, 0, &m.index),
    DDP_CALL(ddp_model_join, h.model, no_stream),
    DDP_CALL(ddp_model_set_metadata, h.model, "key", "value"),
    DDP_CALL(ddp_model_get_metadata, h.model, "key", &m.string),
    DDP_CALL(ddp_model_get_missing, h.model, 0),
    DDP_CALL(ddp_model_get_unexpected, h.model, 0),
    DDP_CALL(ddp_model_get_skipped, h.model, 0),
    DDP_CALL(ddp_model_get_loaded_file, h.model),
    DDP_CALL(ddp_state_save_latest, state(), "/nowhere/at/all", 1),
    DDP_CALL(ddp_state_load_latest, state(), "/nowhere/at/all", nullptr, nullptr),
    DDP_CALL(ddp_state_keep, state(), 1, nullptr),
    DDP_CALL(ddp_state_save_file, state(), "/nowhere/at/all"),
    DDP_CALL(ddp_state_load_file, state(), "/nowhere/at/all", nullptr, nullptr),
    DDP_CALL(ddp_state_save, state(), handle_calls::write, nullptr),
    DDP_CALL(ddp_state_save_local, state(), handle_calls::write, nullptr),
    DDP_CALL(ddp_state_load, state(), handle_calls::read, nullptr, nullptr, nullptr),
    DDP_CALL(ddp_model_set_hook, h.model, ddp_hook_powersgd, nullptr, nullptr),
    DDP_CALL(ddp_model_set_pulled_hook, h.model),
    DDP_CALL(ddp_model_next_bucket, h.model, 0, &m.bucket),
    DDP_CALL(ddp_model_finish_bucket, h.model, 0, nullptr),
    DDP_HOOK(ddp_hook_powersgd, nullptr, h.bucket),
    DDP_CALL(ddp_bucket_get_index, h.bucket),
    DDP_CALL(ddp_bucket_is_last, h.bucket),
    DDP_CALL(ddp_bucket_get_contents, h.bucket, &m.tensor),
    DDP_CALL(ddp_bucket_get_parameter_count, h.bucket),
    DDP_CALL(ddp_bucket_get_parameter, h.bucket, 0, &m.index, &m.tensor),
    DDP_CALL(ddp_bucket_is_used, h.bucket, 0),
    DDP_CALL(ddp_bucket_get_group, h.bucket, &m.group),
    DDP_CALL(ddp_bucket_set_error, h.bucket, "a test"),
    DDP_CALL(ddp_optimizer_create_sgd, h.model, nullptr, nullptr, &m.optimizer),
    DDP_CALL(ddp_optimizer_create_adam, h.model, nullptr, nullptr, &m.optimizer),
    DDP_CALL(ddp_optimizer_create_custom, h.model, nullptr, nullptr, nullptr, handle_calls::update, nullptr, nullptr,
             &m.optimizer),
    DDP_CALL(ddp_optimizer_set_rate, h.optimizer, 0.5),
    DDP_CALL(ddp_optimizer_get_rate, h.optimizer, m.numbers),
    DDP_CALL(ddp_optimizer_get_step_count, h.optimizer, &m.count),
    DDP_CALL(ddp_optimizer_set_loss_scale, h.optimizer, &m.scale),
    DDP_CALL(ddp_optimizer_get_loss_scale, h.optimizer, m.numbers),
    DDP_CALL(ddp_optimizer_copy_loss_scale, h.optimizer, &m.tensor, no_stream),
    DDP_CALL(ddp_optimizer_get_skipped_count, h.optimizer, &m.count),
    DDP_CALL(ddp_optimizer_get_grad_norm, h.optimizer, m.numbers),
    DDP_CALL(ddp_optimizer_set_parameter_options, h.optimizer, 0, 0, 1),
    DDP_CALL(ddp_optimizer_step, h.optimizer, no_stream),
    DDP_CALL(ddp_ema_create, h.model, m.numbers, 1, &m.ema),
    DDP_CALL(ddp_ema_update, h.ema, no_stream),
    DDP_CALL(ddp_ema_swap, h.ema, 0, no_stream),
    DDP_DESTROY(ddp_ema_destroy, h.ema),
    DDP_CALL(ddp_outer_create, h.model, nullptr, &m.outer),
    DDP_CALL(ddp_outer_step, h.outer),
    DDP_CALL(ddp_outer_sync, h.outer),
    DDP_CALL(ddp_outer_get_stats, h.outer, &m.outer_stats),
    DDP_DESTROY(ddp_outer_destroy, h.outer),
    DDP_DESTROY(ddp_optimizer_destroy, h.optimizer),
    DDP_DESTROY(ddp_model_destroy, h.model),
    DDP_DESTROY(ddp_group_destroy, h.group),
};

#undef DDP_CALL
#undef DDP_DESTROY
#undef DDP_HOOK

/// In a fork: every call that takes a handle of the parent is refused at once, with the reason as its text, and what takes
/// none works. Gives "refused", or what went wrong. Bucket and averages may be left out.
inline std::string try_everything(const Handles& h) {
  for (int round = 0; round < 2; ++round)  // the second time after all was "destroyed"
    for (const HandleCall& call : all_handle_calls) {
      const auto is_of = [&](const char* part) { return std::strstr(call.name, part) != nullptr; };
      if (h.bucket == nullptr && (is_of("ddp_bucket_") || is_of("ddp_hook_"))) continue;
      if (h.outer == nullptr && is_of("ddp_outer_") && !is_of("ddp_outer_create")) continue;
      if (h.request == nullptr && is_of("ddp_request_")) continue;
      if (h.ema == nullptr && (is_of("ddp_ema_swap") || is_of("ddp_ema_update"))) continue;
      const auto begin = std::chrono::steady_clock::now();
      const bool refused = call.is_refused(h);
      if (!refused) return std::string(call.name) + " was not refused";
      if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(1)) return std::string(call.name) + " took long";
      if (std::strstr(call.name, "_destroy") == nullptr && std::strstr(ddp_last_error(), "fork()") == nullptr)
        return std::string(call.name) + " says " + ddp_last_error();
    }
  char text[64];
  if (ddp_version() != DDP_VERSION || ddp_copy_last_error(text, sizeof text) < 10)
    return "the functions without a handle do not work";
  ddp_sampler sampler;
  if (ddp_sampler_init(&sampler, sizeof sampler) != DDP_OK) return "ddp_sampler_init failed";
  sampler.dataset_size = 100;
  int64_t indices[100], count = 0;
  if (ddp_sampler_get_count(&sampler, &count) != DDP_OK || count != 100) return "ddp_sampler_get_count failed";
  if (ddp_sampler_fill(&sampler, 3, 0, 100, indices) != DDP_OK) return "ddp_sampler_fill failed";
  return "refused";
}

}  // namespace ddp::test
