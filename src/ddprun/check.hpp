// SPDX-License-Identifier: Apache-2.0
// ddprun --check: checks the machines of a job before it is started. It starts itself as the ranks;
// rank 0 tells what all of them have found. Tested by process/ddprun_check_test.sh.
#pragma once

#include <string>
#include <vector>

namespace ddp::ddprun {

/// What a rank of a check is called with, in the place of a program.
inline constexpr const char* kCheckRank = "--check-rank";
inline constexpr const char* kCheckRankJson = "--check-rank-json";

/// `words`: ddprun's own arguments without --check and --json. 0: nothing is wrong; 1: something is; else that of the job.
int run_check(const std::vector<std::string>& words, bool json);

/// On a rank. Returns its exit code.
int check_as_rank(bool json);

}  // namespace ddp::ddprun
