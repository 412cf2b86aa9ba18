// SPDX-License-Identifier: Apache-2.0
// The sentences with which groups fail, in one place, so that every way to meet and to break has the same texts.
// Pure. Any thread.
// Tested by unit/control/gather_rounds_test.cpp and unit/control/local_hub_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/control.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap::texts {

/// "5 s", "0.25 s"
[[nodiscard]] std::string seconds(int64_t ms);

/// "last heard 0.4 s ago, in pass 17, bucket 1, in ddp_group_barrier" or ", after ddp_group_barrier"; unknown parts are left
/// out.
[[nodiscard]] std::string progress(int64_t silent_ms, const Whereabouts& where);

/// "rank 1 waits for rank 2, which waits for rank 0": whom this rank waits for, as far as it is known; "" for nobody.
[[nodiscard]] std::string waits_behind(const Control& control, int32_t rank);

/// ABORTED: "rank 2 (host b, pid 7) left the group"
[[nodiscard]] Error left_group(const Member& who);
/// A rank, and the call in which it waits for others.
struct Waiting {
  const Member* who = nullptr;
  UserCall call = UserCall::kNone;
};
/// ABORTED: left_group, or "rank 2 (host b, pid 7) exited without ddp_group_destroy while rank 0 (...) waited in
/// ddp_group_barrier". `where`: of the rank, named if it was inside something; `waiting`: another one, if one is known.
[[nodiscard]] Error farewell(const Member& who, Leaving how, const Whereabouts& where,
                             const std::optional<Waiting>& waiting);
/// Did a rank leave the group, or its process end, while nothing of it was under way?
[[nodiscard]] bool is_goodbye(const Control& control, const Error& cause) noexcept;
/// Is this the text of left_group about a member?
[[nodiscard]] bool is_left_group(const Control& control, const Error& cause) noexcept;

/// PEER_FAILED: "rank 2 (host b, pid 7) is gone: its connection closed without a goodbye"
[[nodiscard]] Error gone(const Member& who);

/// PEER_FAILED: the same before all ranks had come
[[nodiscard]] Error gone_early(const Member& who);

/// PEER_FAILED: the server's process or host ended, seen by the others.
[[nodiscard]] Error server_gone(const Member& rank0);

/// PEER_FAILED: the same before all ranks had come. `place` is where rank 0 was.
[[nodiscard]] Error server_gone_early(std::string_view place);

/// PEER_FAILED: "rank 2 (...) was silent for more than 10 s (stopped, or its host is unreachable); last seen in pass 17"
[[nodiscard]] Error silent(const Member& who, int64_t limit_ms, const Whereabouts& where);

/// PEER_FAILED: "rank 2 (host b, pid 7) could not go on in ddp_model_commit: out of memory"; function may be NULL
[[nodiscard]] Error gave_up(const Member& who, const char* function, std::string_view why);

/// PEER_FAILED: "rank 2 (...) broke the control protocol: ..."
[[nodiscard]] Error broke_protocol(const Member& who, std::string_view how);

/// The call in which a rank waits, as a number and in words.
struct At {
  UserCall call = UserCall::kNone;
  std::string words;
};
/// DIFFERENT_CALLS: "ranks made different calls: rank 0 (...) waits in ddp_state_save_file; rank 1 (...) waits in
/// ddp_group_barrier; ..."
[[nodiscard]] Error different_calls(const Member& a, const At& at_a, const Member& b, const At& at_b);

/// DIFFERENT_CALLS: "ranks wait for each other: rank 0 (...) waits in ddp_group_receive for a message of rank 1 with tag 3;
/// rank 1 (...) waits in ddp_group_barrier for rank 0; nothing is under way between them". One call for each member, two or
/// more.
[[nodiscard]] Error wait_for_each_other(const std::vector<const Member*>& members, const std::vector<At>& calls);

/// TIMED_OUT: "rank 3 (...) did not join ddp_model_commit (\"plan\") within 5 s: last heard 0.4 s ago, in pass 17". `detail`
/// only for one rank; `call` as from describe_call().
[[nodiscard]] Error gather_timed_out(const std::vector<Member>& missing, std::string_view call, int64_t ms,
                                     std::string_view detail);

/// The ranks that are missing when a meeting ends.
struct Absent {
  std::vector<int32_t> never_came;
  std::vector<int32_t> gone_again;  // was there, but ended or gave up before the others came
  std::vector<int32_t> refused{};   // of never_came: a process with another token wanted to be it
};

/// TIMED_OUT: "rank 2 of 4 did not come within 5 s". `place` is where rank 0 waited, "" if that cannot be the reason;
/// `placement` as expected_on() takes it.
[[nodiscard]] Error never_came(const Absent& absent, int32_t size, int64_t ms, std::string_view place,
                               std::string_view placement = "");

/// "rank 1 on host a, ranks 2 and 3 on host b", of ranks in ascending order. `placement`: hosts and how many ranks each has,
/// as ddprun gives it in DDP_PLACEMENT: "a:2,b:2". "" if it does not say.
[[nodiscard]] std::string expected_on(const std::vector<int32_t>& ranks, std::string_view placement);

/// What it means that a connection failed with this errno, and what to do; 0: nothing has answered.
[[nodiscard]] std::string unreachable_advice(int error);

/// What to do if rank 0 listens where the others do not reach it.
[[nodiscard]] std::string other_interface_hint();

/// INVALID_ARGUMENT: the rank number is taken.
[[nodiscard]] Error duplicate_rank(const Member& present);

/// INVALID_ARGUMENT: "rank 4 is out of range: the group has 4 ranks, 0 to 3"
[[nodiscard]] Error rank_out_of_range(int32_t rank, int32_t size);

/// MISMATCH: "rank 1 was started with a world size of 3, but rank 0 with 4"
[[nodiscard]] Error different_size(int32_t rank, int32_t size, int32_t other_rank, int32_t other_size);

/// INVALID_ARGUMENT: a gather over the limits.
[[nodiscard]] Error gather_too_large(std::string_view what, size_t bytes);

/// MISMATCH: "this rank uses version 1 of the control protocol, rank 0 version 2; ..."
[[nodiscard]] Error different_protocol(uint32_t mine, uint32_t rank0);

/// IO: the token is not rank 0's.
[[nodiscard]] Error wrong_token();

/// IO: one side has a token, the other has not.
[[nodiscard]] Error token_on_one_side(bool rank0_has_it);

/// INVALID_ARGUMENT: an address that other machines can reach needs a token; explains how to set one.
[[nodiscard]] Error token_needed(std::string_view address);

/// TIMED_OUT: rank 0 was not found; `detail` is what happened at the last try.
[[nodiscard]] Error rank0_never_came(std::string_view place, int64_t ms, std::string_view detail);

/// FENCED: "rank 3 (...) was silent for too long, and the others have gone on without it".
[[nodiscard]] Error fenced(const Member& who);

/// TIMED_OUT: a rank that wants to join found no group. `by_host`: only ranks of one host would tell it there.
[[nodiscard]] Error nobody_to_join(std::string_view where, int64_t ms, bool by_host = false);

/// TIMED_OUT: a rank that wants to join.
[[nodiscard]] Error not_taken_in(int64_t ms);

/// TIMED_OUT: "ranks have died 4 times on host b within 10 minutes: new ranks of it are taken in again in 37 s"
[[nodiscard]] Error kept_out(std::string_view host, size_t deaths, int64_t left_ms);

/// TIMED_OUT: the others recover without new ranks, of which one has failed, and take new ones in afterwards.
[[nodiscard]] Error come_again();

/// TOO_FEW_RANKS: the ranks that are missing for a recovery; ids as at the creation of the group.
[[nodiscard]] Error too_few(const std::vector<int32_t>& here, const std::vector<int32_t>& dead, int32_t min_ranks);
/// NO_MAJORITY: the others may continue without the ranks that are here.
[[nodiscard]] Error minority(const std::vector<int32_t>& here, const std::vector<int32_t>& silent, bool allow_half);

/// INVALID_STATE: a call after leave().
[[nodiscard]] Error already_left();

}  // namespace ddp::bootstrap::texts
