// SPDX-License-Identifier: Apache-2.0
// A rank that joins a training and is not fit for it: it does something else than the others, or lacks what it needs. It
// leaves at its first step, should it come to that.
#pragma once

#include <sys/resource.h>

#include "chaos/plan.hpp"
#include "support/unfit_rank.hpp"

namespace ddp::test {

inline void let_be_wrong(Survival& mine, int64_t how) {
  switch (how % 7) {
    case 0: mine.adds = [](ddp_group*, ddp_model* model) { return add_one_parameter_more(model); }; break;
    case 1: mine.adds = [](ddp_group* group, ddp_model*) { return ddp_group_barrier(group); }; break;
    case 2: mine.adds = [](ddp_group*, ddp_model*) -> ddp_status { _exit(0); }; break;
    case 3:
      mine.adds = [how](ddp_group*, ddp_model*) -> ddp_status {
        std::this_thread::sleep_for(std::chrono::milliseconds(how));
        _exit(0);
      };
      break;
    case 4:
      mine.asks = [](ddp_group_options& options) { options.virtual_ranks = options.virtual_ranks == 0 ? 8 : 0; };
      break;
    case 5:
      mine.asks = [](ddp_group_options& options) {
        options.backend = options.backend == DDP_BACKEND_GLOO ? DDP_BACKEND_SHM : DDP_BACKEND_GLOO;
      };
      break;
    default: mine.asks = [](ddp_group_options& options) { options.first_port = options.last_port = taken_port(); };
  }
}

/// Descriptors, files that memory is shared by, or memory.
inline void let_starve(int64_t how) {
  (void)signal(SIGXFSZ, SIG_IGN);
  const auto some = static_cast<rlim_t>(how / 3);
  switch (how % 3) {
    case 0: return set_limit(RLIMIT_NOFILE, 8 + some % 32);
    case 1: return set_limit(RLIMIT_FSIZE, 4096 * (1 + some));
    default: break;
  }
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  set_limit(RLIMIT_AS, pages * static_cast<rlim_t>(getpagesize()) + (some << 17U));
}

inline void spoil(Survival& mine, const Blow& blow) {
  mine.made = [](int64_t, uint64_t) { _exit(0); };
  blow.kind == Kind::kWrong ? let_be_wrong(mine, blow.how) : let_starve(blow.how);
}

}  // namespace ddp::test
