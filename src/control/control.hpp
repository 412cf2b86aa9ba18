// SPDX-License-Identifier: Apache-2.0
// The control plane of a group: its members, small exchanges, and the propagation of failures. It carries no gradients.
//
// Two implementations: over TCP with rank 0 as the server, and in memory for ranks that are threads (rendezvous local://).
// Threads: gather() from one thread at a time; abort(), leave(), member() and letters from any thread; callbacks come
// from a library thread.
// Tested by unit/control/control_*_test.cpp and process/control_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/auth.hpp"
#include "control/call_state.hpp"
#include "control/letters.hpp"
#include "core/error.hpp"
#include "os/clock.hpp"

namespace ddp::bootstrap {

/// Who a rank is, for error texts and for finding out who shares a host.
struct Member {
  int32_t rank = -1;
  std::string host;     // host name, as people know it
  std::string boot_id;  // equal on one running kernel
  int64_t pid = 0;
  std::string address;      // numeric address under which this rank reaches rank 0, "" if none
  int32_t world_rank = -1;  // in a group made by ddp_group_split: the rank in the group that was made by ddp_group_create
  int32_t id = -1;          // its rank when the group was created; it stays when a recovery gives it another rank

  /// "rank 3 (host b, pid 4711)", "rank 1 (world rank 3, host b, pid 4711)"
  [[nodiscard]] std::string name() const {
    const std::string world = world_rank < 0 ? "" : "world rank " + std::to_string(world_rank) + ", ";
    return "rank " + std::to_string(rank) + " (" + world + "host " + host + ", pid " + std::to_string(pid) + ")";
  }
};

/// How a rank leaves its group.
enum class Leaving : uint8_t {
  kGroup = 1,     // the group was destroyed
  kProcess,       // the process ends by exit(), and nothing of this rank is under way
  kProcessInside  // ... while a thread of it is in a call, or a pass or request is open
};

class Control {
 public:
  virtual ~Control() = default;

  [[nodiscard]] virtual int32_t rank() const noexcept = 0;
  [[nodiscard]] virtual int32_t size() const noexcept = 0;
  [[nodiscard]] virtual const Member& member(int32_t rank) const noexcept = 0;
  /// auth::link_key: for connections other than the control plane. All zero if not set.
  [[nodiscard]] const auth::Key& link_key() const noexcept { return link_key_; }
  void set_link_key(const auth::Key& key) noexcept { link_key_ = key; }

  /// Collective: every rank gives up to 8 MiB, every rank gets all of it in rank order. All ranks must call in the same
  /// order with the same `what` (a short name; a difference is DIFFERENT_CALLS on all ranks). A rank that does not come in
  /// time is named in TIMED_OUT; a group that breaks meanwhile ends the wait with the first cause.
  [[nodiscard]] virtual std::vector<std::string> gather(std::string_view what, std::string_view mine,
                                                        os::Deadline deadline) = 0;

  /// Break the group everywhere: the other ranks' failure callbacks get the cause. Never blocks. Only the first counts.
  virtual void abort(const Error& cause) noexcept = 0;

  /// The cause that counts on all ranks: rank 0's decision after an abort(), or the failure that came without one. Waits for
  /// it up to limits::kFirstCauseMs; nothing if it does not come. A rank that ends after this call is not reported as the
  /// cause.
  [[nodiscard]] virtual std::optional<Error> settle() { return std::nullopt; }

  /// The process of another rank is seen to have ended, before its connection closes. The cause comes as any other, by
  /// on_failure.
  /// Never blocks.
  virtual void saw_death(int32_t) noexcept {}

  /// Orderly goodbye: the others learn "rank r left the group" (ABORTED). Returns within 1 s, also when peers are dead.
  /// Of a process that ends by exit() a thread that waits in a call here is not woken; ranks that are threads end with it,
  /// so they do nothing.
  virtual void leave(Leaving how) noexcept = 0;
  void leave() noexcept { leave(Leaving::kGroup); }

  /// Call `fn` once with the first cause, from a library thread, when the group breaks (a peer died, was silent for too
  /// long, left, or aborted). If it is broken already, `fn` is called at once. Set before the first gather by the group.
  virtual void on_failure(std::function<void(const Error&)> fn) = 0;

  /// A few bytes for one other rank, at most limits::kLetterBytes; letters of one rank to another come in their order. Never
  /// blocks. A letter to a rank that has left, or in a group that has broken, is lost.
  void write_letter(int32_t to, std::string_view text) const { letters_.write(to, text); }
  /// Call `fn` with each letter that comes, from a library thread; with those that have come already at once. `fn` is quick.
  /// An empty `fn`: no letter is given out any more, and none is being given out when this returns.
  void on_letter(Letters::Reader fn) { letters_.set_reader(std::move(fn)); }

  /// A text with this rank's position ("pass 17, bucket 2"), sent with heartbeats; shown when a rank waits for it.
  /// Wait-free.
  virtual void set_progress(int64_t pass, int32_t bucket) noexcept = 0;

  /// The present call of this rank and the exchange that it waits for. The control plane tells the others; if all ranks wait
  /// and none can continue, it breaks the group with DIFFERENT_CALLS.
  [[nodiscard]] virtual CallState& calls() noexcept { return calls_; }

  /// The last known progress of a rank.
  struct Sign {
    int64_t at_ns = 0;  // 0: nothing
    Whereabouts where{};
    bool stood_still = false;  // of this rank: stopped, or its machine paused, when the group broke, afterwards or shortly
                               // before, so others may count it as dead. Of another: silent to this one when it broke
  };
  [[nodiscard]] virtual Sign last_sign(int32_t) const { return {}; }

  /// What is known of another rank: "last heard 0.4 s ago, in pass 17, bucket 1, in
  /// ddp_group_barrier". For error texts.
  [[nodiscard]] virtual std::string describe_progress(int32_t rank) const;

 protected:
  [[nodiscard]] const CallState& own_calls() const noexcept { return calls_; }
  [[nodiscard]] Letters& letters() noexcept { return letters_; }

 private:
  CallState calls_;
  Letters letters_;
  auth::Key link_key_{};
};

}  // namespace ddp::bootstrap
