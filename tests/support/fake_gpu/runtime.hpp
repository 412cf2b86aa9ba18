// SPDX-License-Identifier: Apache-2.0
// What the fake is made of, under one lock: simple, and every interleaving of the calls is possible. Stream threads hold the
// lock between operations only; whatever waits does so on `changed`.
// Never destroyed: threads of a program that ends may still be inside.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/fake_gpu/address_space.hpp"
#include "support/fake_gpu/clock.hpp"
#include "support/fake_gpu/codes.hpp"
#include "support/fake_gpu/fake_gpu.hpp"
#include "support/fake_gpu/races.hpp"

namespace ddp::test::fake_gpu {

using Lock = std::unique_lock<std::mutex>;
using Work = std::function<void()>;

struct Capture;
struct Comm;
struct World;
struct Stream;
using CapturePtr = std::shared_ptr<Capture>;
using CommPtr = std::shared_ptr<Comm>;

struct Operation {
  std::string name;
  std::vector<Access> accesses;
  Work work;                          // run by the stream's thread, without the lock
  std::function<Work()> instantiate;  // in the place of `work`: called when the operation is queued, under the lock
};

/// One recording of an event.
struct Mark {
  bool done = false;
  std::chrono::steady_clock::time_point time;
  Clock clock;         // what has happened when it is done
  CapturePtr capture;  // the recording belongs to
  std::weak_ptr<Stream> stream;
  int64_t asked = 0;  // since it was done
};
using MarkPtr = std::shared_ptr<Mark>;

struct Event {
  int64_t number = 0;
  int32_t device = 0;
  bool timing = false;
  MarkPtr last;
};
using EventPtr = std::shared_ptr<Event>;

struct Stream {
  void* handle = nullptr;  // NULL: a default stream
  int64_t number = 0;
  size_t actor = 0;
  int32_t device = 0;
  bool high_priority = false;
  bool paused = false;
  bool closing = false;
  Clock clock;
  CapturePtr capture;
  Clock capture_clock;
  std::deque<Work> queue;
  int64_t queued = 0;  // operations, in all
  int64_t done = 0;
  uint64_t random = 0;
  bool awaited = false;                          // by a host, since it was idle last
  std::chrono::steady_clock::time_point begins;  // not before, unless it is awaited
  std::condition_variable wake;
};
using StreamPtr = std::shared_ptr<Stream>;

/// A call of a table's function, for log, counters and faults.
struct Call {
  const char* name;
  void* stream = nullptr;
  void* event = nullptr;
  int64_t bytes = -1;
  bool has_stream = false;
  bool releases = false;  // done even if the device is lost
  bool needs_driver = true;
  bool is_nccl = false;
  int32_t device = -1;    // -1: the thread's
  bool enqueues = false;  // gives the device something to do, or an order of streams
};

struct ActiveFault {
  Fault fault;
  int64_t seen = 0;
};

/// What reset() throws away.
struct State {
  explicit State(const Options& with)
      : options(with),
        space(with.devices, with.device_bytes, with.poison),
        device_paused(static_cast<size_t>(with.devices)),
        device_lost(static_cast<size_t>(with.devices)),
        ended(static_cast<size_t>(with.devices)),
        default_streams(static_cast<size_t>(with.devices)),
        async_errors(static_cast<size_t>(with.devices)) {}

  Options options;
  AddressSpace space;
  std::vector<bool> device_paused, device_lost;
  std::vector<Clock> ended;  // of each device: what happened in destroyed streams

  int64_t streams_made = 0, events_made = 0, operations_made = 0, comms_made = 0;
  size_t actors = 0;
  std::vector<StreamPtr> default_streams;  // of each device; made when they are used
  std::map<void*, StreamPtr> streams;
  std::map<void*, EventPtr> events;
  std::map<void*, std::string> dead_handles;
  std::vector<StreamPtr> retired;  // destroyed, but not empty yet
  std::vector<CapturePtr> captures;
  uint64_t captures_made = 0;

  Races races;
  Clock known;  // by the host
  std::vector<std::string> violations;

  std::deque<std::string> log;
  std::map<std::string, std::map<int32_t, int64_t>> counts;
  int64_t pageable_copies = 0;
  std::map<int32_t, int64_t> enqueued;  // by device
  std::vector<ActiveFault> faults;
  Death death;
  int64_t calls_before_death = 0;
  bool dead = false;

  std::map<void*, CommPtr> comms;
  std::map<std::string, std::shared_ptr<World>> worlds;  // by their id, also those that are over
  std::map<void*, std::pair<CommPtr, uintptr_t>> registrations;
  std::vector<int32_t> async_errors;
  std::map<std::pair<NcclCall, int32_t>, int64_t> delays;
  std::string open_nccl_error;
  int64_t collectives = 0;
  std::map<int32_t, int32_t> nccl_on_device;  // collectives that have a place there
  struct Turns {
    uint64_t given = 0, begun = 0;
    std::set<uint64_t> given_up;
  };
  std::map<int32_t, Turns> nccl_turns;  // by device, where NCCL keeps the order of the host's calls
};

class Runtime {
 public:
  std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  int64_t host_waiters = 0;
  int64_t threads = 0;  // of streams; detached, so that a program may end at any time
  int64_t generation = 1;
  std::unique_ptr<State> state;
  int64_t ending = 0;       // threads that are inside calls of NCCL which release something
  bool taken_down = false;  // NCCL, by exit()

  void reset(const Options& asked);

  /// Log, counters, faults. Not 0: the call ends with that code.
  int32_t begin_call(const Call& call);
  void violate(std::string text);

  /// NULL: not a handle (for a handle that was destroyed, a violation is noted).
  StreamPtr stream_of(void* handle);
  EventPtr event_of(void* handle);
  /// 0: a default stream, or none that lives.
  [[nodiscard]] int64_t number_of_stream(void* handle) const;
  [[nodiscard]] int64_t number_of_event(void* handle) const;
  StreamPtr default_stream(int32_t device);
  StreamPtr make_stream(int32_t device, bool high_priority, bool is_default);
  void close_stream(const StreamPtr& stream);

  /// A host waits for it.
  void await(Stream& stream);
  /// Gives the stream an operation; into its capture if it is capturing.
  void enqueue(const StreamPtr& stream, Operation operation);
  [[nodiscard]] std::string describe(const Stream& stream, const std::string& operation);

  /// Blocks the calling host thread. False: reset ended the wait.
  template <class Ready>
  bool wait(Lock& lock, Ready&& ready) {
    ++host_waiters;
    changed.wait(lock, [&] { return stopping || ready(); });
    --host_waiters;
    if (stopping) changed.notify_all();
    return !stopping;
  }
  /// Until everything that has been queued on the streams so far is done.
  bool wait_for(Lock& lock, const std::vector<StreamPtr>& streams);
  [[nodiscard]] std::vector<StreamPtr> streams_of(int32_t device) const;  // -1: all

  /// The host has learned that this has happened.
  void learn(const Clock& clock, bool by_blocking);
  [[nodiscard]] Clock known() const;

 private:
  Runtime() = default;
  friend Runtime& runtime();
  void run(Stream& stream);
  [[nodiscard]] bool is_held(const Stream& stream) const;
  void take_next(Stream& stream, Lock& lock);
  [[nodiscard]] bool may_run(const Stream& stream) const;
};

/// Made, with default options, when it is asked for first.
Runtime& runtime();

/// Of the calling thread.
int32_t& current_device() noexcept;
/// A call about what belongs to `device`: the calling thread must have it current, or it begins to use another one.
void expect_current(Runtime& r, int32_t device, const char* name);
/// Memory that is freed by a call that does not wait: a violation if it may still be in use (memory_calls.cpp).
void expect_unused(Runtime& r, const char* name, const Block& block);
/// Did it call relax_capture?
bool& is_relaxed() noexcept;

/// Does the death that was ordered come in this call, or has it come? Then false once it is over (pessimist.cpp).
bool dies(Runtime& r, Lock& lock, const Call& call);
/// Is that a call of NCCL that can go wrong, not one that looks?
[[nodiscard]] bool counts(const Call& call) noexcept;
/// Takes as long as slow_init_ms asks for.
void linger(Runtime& r, Lock& lock, int32_t device);
/// What the environment asks for, too.
[[nodiscard]] Options with_modes(Options options);
uint64_t next_random(uint64_t& state) noexcept;

/// Is this a fork of the process that made the runtime? (forks.cpp)
[[nodiscard]] bool is_fork() noexcept;
/// Notes the violation where the parent sees it, without a lock.
int32_t refuse_in_fork(const Call& call) noexcept;
[[nodiscard]] std::vector<std::string> violations_of_forks();
void clear_violations_of_forks() noexcept;

/// A call of NCCL, as exit() sees it: one that comes after it, or that it meets and that releases something, is a violation
/// (exits.cpp). Made and ended under the lock.
class BesideExit {
 public:
  BesideExit(Runtime& r, const Call& call);
  ~BesideExit() { runtime_.ending -= counts_; }
  BesideExit(const BesideExit&) = delete;
  BesideExit& operator=(const BesideExit&) = delete;

 private:
  Runtime& runtime_;
  const int64_t counts_;
};

/// What every function of the tables does around its work: body(runtime, lock).
template <class Body>
int32_t entered(const Call& call, Body&& body) {
  if (is_fork()) return refuse_in_fork(call);
  Runtime& r = runtime();
  Lock lock(r.mutex);
  const int32_t code = r.begin_call(call);
  const BesideExit beside(r, call);
  if (call.is_nccl && dies(r, lock, call)) return kNcclRemote;
  if (code != kOk && !(call.releases && code == kIllegalAddress)) return code;
  const int32_t result = body(r, lock);
  return code != kOk ? code : result;
}

[[nodiscard]] inline uintptr_t address_of(const void* memory) noexcept { return reinterpret_cast<uintptr_t>(memory); }

}  // namespace ddp::test::fake_gpu
