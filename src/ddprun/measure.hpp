// SPDX-License-Identifier: Apache-2.0
// What ddprun --check measures with libddp, on all ranks together: links of pairs, an all-reduce and an optimizer's step,
// both compared with the bandwidth of memory. Tested by process/ddprun_check_test.sh.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ddp/ddp.h"

namespace ddp::ddprun {

// libddp, opened by ddprun --check as any program of this machine would find it. ddprun itself does without.
/// The functions of libddp that a check needs. Loaded once, and never unloaded.
struct Library {
#define DDP_CHECK_FUNCTIONS(each)                                                                                  \
  each(build_info) each(last_error) each(group_create) each(group_split) each(group_destroy) each(group_get_rank)  \
      each(group_get_size) each(group_barrier) each(group_all_reduce) each(group_all_gather) each(group_broadcast) \
          each(group_reduce_metrics) each(group_alloc) each(group_free) each(tensor_init) each(model_create)       \
              each(model_destroy) each(model_add_array) each(model_commit) each(model_begin_backward)              \
                  each(model_mark_ready) each(model_end_backward) each(optimizer_create_adam) each(optimizer_step) \
                      each(optimizer_destroy)
#define DDP_CHECK_MEMBER(name) decltype(&::ddp_##name) name = nullptr;  // NOLINT(bugprone-macro-parentheses)
  DDP_CHECK_FUNCTIONS(DDP_CHECK_MEMBER)
#undef DDP_CHECK_MEMBER
};

/// In this program's folder, else as the loader finds it. Throws IO with a sentence about what to do.
[[nodiscard]] Library open_library();

struct PairFigures {
  int32_t first = 0, second = 0;  // ranks
  double sum_us = 0;              // an all-reduce of one number between the two
  double bytes_per_s = 0;         // of a broadcast from one to the other
};

struct Figures {
  std::vector<PairFigures> pairs;
  int64_t bytes = 0;  // of the all-reduce
  double all_reduce_s = 0;
  double copy_s = 0;  // to copy as many bytes, all ranks at once: what memory needs at least
  double barrier_us = 0;
  int64_t parameters = 0;  // of the optimizer's step, on each rank
  double adam_s = 0;
  double adam_copy_s = 0;  // to copy as many bytes as the step reads and writes, all ranks at once
};

/// The offset of a rank's realtime clock from that of rank 0.
struct ClockFigures {
  double offset_s = 0;  // what is to be added to it
  double error_s = 0;   // at most so wrong
};

/// Throws libddp's error if a call fails. `notice`: what begins now, on rank 0.
[[nodiscard]] Figures measure(const Library& library, ddp_group* group, const std::function<void(const char*)>& notice);
/// By rank.
[[nodiscard]] std::vector<ClockFigures> compare_clocks(const Library& library, ddp_group* group);

/// Throws if the call has failed.
void require(const Library& library, ddp_status status);

}  // namespace ddp::ddprun
