// SPDX-License-Identifier: Apache-2.0
// libddp, opened by ddprun --check as any program of this machine would find it. ddprun itself does without.
// Tested by process/ddprun_check_test.sh.
#pragma once

#include <string>

#include "ddp/ddp.h"

namespace ddp::ddprun {

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

}  // namespace ddp::ddprun
