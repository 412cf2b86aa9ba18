// SPDX-License-Identifier: Apache-2.0
// Data that a group publishes while it works, for observers outside the process. Without an observer the group has no Watch,
// and each event costs one test of a pointer. Cost: some relaxed stores, and a reading of the clock where the time is not
// known; one event more if a trace is on. Nothing is allocated. Threads: any, except for start() and regroup(); start() is
// for the group that has claimed the session. Tested by unit/trace/watch_test.cpp, unit/trace/live_test.cpp,
// process/live_test.cpp and process/trace_test.cpp.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trace/live.hpp"
#include "trace/ring.hpp"

namespace ddp::trace {

/// A pass that ended well.
struct PassNumbers {
  int64_t backward_ns = 0;
  int64_t comm_ns = 0;
  int64_t exposed_ns = 0;
  int64_t sent_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t buckets = 0;
  int64_t largest_bucket = 0;   // bytes
  int64_t smallest_bucket = 0;  // bytes
};

/// A trace that is on.
struct Session {
  const void* group = nullptr;  // who began it, and ends it
  std::string path{};           // of the file that becomes of it
  std::string folder{};         // of its rings, which is removed at its end; "": owned by another
  int64_t begin_ns = 0;         // what ended before is no part of it
};

/// Traces of the groups that share a Watch: one that a group began, and the launcher's, which continues in parallel.
class Sessions {
 public:
  /// This group has a trace now, and no other one begins. False: there is one, for `other` if that is known here.
  [[nodiscard]] bool claim(const Session& session, std::string& other);
  /// What this group has claimed.
  [[nodiscard]] std::optional<Session> of(const void* group) const;
  void set(const Session& session);
  void drop(const void* group) noexcept;
  void set_launchers(const Session& session);
  [[nodiscard]] std::optional<Session> take_launchers() noexcept;

 private:
  mutable std::mutex mutex_;  // guards both
  std::optional<Session> own_;
  std::optional<Session> launchers_;
};

class Watch {
 public:
  explicit Watch(std::unique_ptr<LiveFile> live = nullptr) noexcept : live_(std::move(live)) {}
  /// The writer of this process to the folder that its launcher watches (DDP_WATCH_DIR). NULL: no launcher watches, or
  /// another group of the process writes already, or it cannot be written, which is logged.
  [[nodiscard]] static std::unique_ptr<LiveFile> live_of_launcher(const char* folder, int32_t number,
                                                                  const std::string& host, int32_t size) noexcept;

  /// Events are recorded from here on, and no longer. A group and its sub-groups may have threads of their own.
  void start(std::unique_ptr<Recorder> recorder);
  void stop() noexcept { recorder_.store(nullptr); }
  [[nodiscard]] bool is_on() const noexcept { return recorder_.load(std::memory_order_relaxed) != nullptr; }
  /// The recorder, which stays as long as this lives; NULL: no trace is on in this process.
  class Use {
   public:
    explicit Use(const Watch& watch) noexcept;
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    [[nodiscard]] Recorder* get() const noexcept { return recorder_; }

   private:
    std::atomic<int32_t>& users_;
    Recorder* recorder_;
  };
  /// How many traces have begun.
  [[nodiscard]] uint32_t traces() const noexcept { return traces_.load(std::memory_order_relaxed); }
  [[nodiscard]] Sessions& sessions() noexcept { return sessions_; }
  /// For a model: what its events are known by.
  [[nodiscard]] uint32_t next_model() noexcept { return ++models_; }

  /// The rank's number in its group, which is the n-th generation: 1 as it was created, one more with each recovery.
  /// `transports`: bits of TransportBit.
  void regroup(int32_t rank, int32_t size, int64_t generation, int32_t transports) noexcept;
  /// The group, or a sub-group, uses this one too.
  void add_transport(TransportBit transport) noexcept;
  void end_recovery() noexcept;
  /// A public collective call (bootstrap::UserCall) begins, and has returned; of the group with this state, which has one at
  /// a time.
  void enter(const void* state, int32_t call) noexcept;
  void leave(const void* state) noexcept;
  void end_pass(const PassNumbers& numbers) noexcept;
  void void_pass() noexcept;
  void end_step(int64_t begin_ns) noexcept;
  void end_save(int64_t begin_ns) noexcept;
  /// The program waited for that rank.
  void end_wait(int32_t rank, int64_t begin_ns, int64_t end_ns) noexcept;
  /// The n-th gather of the control plane; `of_all`: of the group itself, and not of a sub-group.
  void end_gather(uint64_t number, int64_t begin_ns, bool of_all) noexcept;
  /// Of any other kind.
  void record(const Event& event) noexcept {
    if (!is_on()) return;
    const Use use(*this);
    if (use.get() != nullptr) use.get()->record(event);
  }
  /// One that ends now.
  void record_end(Event event) noexcept;

 private:
  [[nodiscard]] LivePage* page() const noexcept { return live_ != nullptr && live_->is_ours() ? &live_->page() : nullptr; }

  /// A call that has not returned.
  struct OpenCall {
    std::atomic<const void*> state{nullptr};
    std::atomic<int32_t> call{0};
    std::atomic<int64_t> begin_ns{0};
  };
  [[nodiscard]] OpenCall* claim(const void* state) noexcept;

  const std::unique_ptr<LiveFile> live_;
  std::array<OpenCall, 8> open_calls_;  // of the group and its sub-groups
  std::atomic<Recorder*> recorder_{nullptr};
  mutable std::atomic<int32_t> users_{0};             // threads that may be in a recorder
  std::vector<std::unique_ptr<Recorder>> recorders_;  // of the one that starts traces; the newest last
  Sessions sessions_;
  std::atomic<uint32_t> traces_{0};
  std::atomic<uint32_t> models_{0};
  std::atomic<int64_t> generation_{1};
};

}  // namespace ddp::trace
