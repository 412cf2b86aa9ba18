// SPDX-License-Identifier: Apache-2.0
#include "trace/watch.hpp"

#include <utility>

#include "core/attempt.hpp"
#include "os/clock.hpp"
#include "os/log.hpp"
#include "os/own_files.hpp"

namespace ddp::trace {

std::unique_ptr<LiveFile> Watch::live_of_launcher(const char* folder, int32_t number, const std::string& host,
                                                  int32_t size) noexcept {
  if (folder == nullptr || *folder == '\0') return nullptr;
  std::unique_ptr<LiveFile> live;
  const std::optional<Error> failed = try_to([&] {
    os::check_own_folder(folder);
    live = LiveFile::claim(folder, number, host, size);
  });
  if (failed) os::log_of(*failed, DDP_LOG_WARNING, "this rank cannot be watched in DDP_WATCH_DIR: %s", failed->what());
  return live;
}

bool Sessions::claim(const Session& session, std::string& other) {
  const std::lock_guard lock(mutex_);
  if (own_) {
    other = own_->path;
    return false;
  }
  own_ = session;
  return true;
}

std::optional<Session> Sessions::of(const void* group) const {
  const std::lock_guard lock(mutex_);
  return own_ && own_->group == group ? own_ : std::nullopt;
}

void Sessions::set(const Session& session) {
  const std::lock_guard lock(mutex_);
  own_ = session;
}

void Sessions::drop(const void* group) noexcept {
  const std::lock_guard lock(mutex_);
  if (own_ && own_->group == group) own_.reset();
}

void Sessions::set_launchers(const Session& session) {
  const std::lock_guard lock(mutex_);
  launchers_ = session;
}

std::optional<Session> Sessions::take_launchers() noexcept {
  const std::lock_guard lock(mutex_);
  return std::exchange(launchers_, std::nullopt);
}

// A thread that has found the recorder is counted before it looked.
Watch::Use::Use(const Watch& watch) noexcept : users_(watch.users_) {
  users_.fetch_add(1);
  recorder_ = watch.recorder_.load();
  if (recorder_ != nullptr && !recorder_->is_ours()) recorder_ = nullptr;
}

Watch::Use::~Use() { users_.fetch_sub(1); }

void Watch::start(std::unique_ptr<Recorder> recorder) {
  stop();
  if (users_.load() == 0) recorders_.clear();
  recorders_.push_back(std::move(recorder));
  ++traces_;
  recorder_.store(recorders_.back().get());
}

void Watch::record_end(Event event) noexcept {
  if (!is_on()) return;
  event.end_ns = os::now_ns();
  record(event);
}

void Watch::regroup(int32_t rank, int32_t size, int64_t generation, int32_t transports) noexcept {
  generation_.store(generation, std::memory_order_relaxed);
  LivePage* const live = page();
  if (live == nullptr) return;
  put(live->place.rank, rank);
  put(live->place.size, size);
  put(live->place.generation, generation);
  put(live->place.transports, transports);
}

void Watch::add_transport(TransportBit transport) noexcept {
  if (LivePage* const live = page())
    std::atomic_ref<int32_t>(live->place.transports).fetch_or(transport, std::memory_order_relaxed);
}

void Watch::end_recovery() noexcept {
  if (LivePage* const live = page()) add(live->place.recoveries, 1);
}

/// NULL: all are taken, and the call is left out.
Watch::OpenCall* Watch::claim(const void* state) noexcept {
  for (OpenCall& open : open_calls_) {
    const void* nobody = nullptr;
    if (open.state.compare_exchange_strong(nobody, state, std::memory_order_acq_rel)) return &open;
  }
  return nullptr;
}

void Watch::enter(const void* state, int32_t call) noexcept {
  const int64_t now = os::now_ns();
  if (is_on())
    if (OpenCall* const open = claim(state)) {
      open->call.store(call, std::memory_order_relaxed);
      open->begin_ns.store(now, std::memory_order_relaxed);
    }
  LivePage* const live = page();
  if (live == nullptr) return;
  put(live->place.call, call);
  put(live->place.in_call, 1);
  put(live->place.call_since_ns, now);
}

void Watch::leave(const void* state) noexcept {
  const int64_t now = os::now_ns();
  for (OpenCall& open : open_calls_) {
    if (open.state.load(std::memory_order_relaxed) != state) continue;
    record({EventKind::kCall, 0, static_cast<uint32_t>(open.call.load(std::memory_order_relaxed)),
            open.begin_ns.load(std::memory_order_relaxed), now});
    open.state.store(nullptr, std::memory_order_release);
  }
  LivePage* const live = page();
  if (live == nullptr) return;
  put(live->place.in_call, 0);
  put(live->place.call_since_ns, now);
}

void Watch::end_pass(const PassNumbers& numbers) noexcept {
  LivePage* const live = page();
  if (live == nullptr) return;
  LivePage::Passes& passes = live->passes;
  add(passes.backward_ns, numbers.backward_ns);
  add(passes.comm_ns, numbers.comm_ns);
  add(passes.exposed_ns, numbers.exposed_ns);
  add(passes.sent_bytes, numbers.sent_bytes);
  put(passes.gradient_bytes, numbers.gradient_bytes);
  put(passes.buckets, numbers.buckets);
  put(passes.largest_bucket, numbers.largest_bucket);
  put(passes.smallest_bucket, numbers.smallest_bucket);
  put(passes.last_at_ns, os::now_ns());
  add(passes.count, 1);
}

void Watch::void_pass() noexcept {
  const int64_t now = os::now_ns();
  record({EventKind::kVoid, 0, 0, now, now});
  if (LivePage* const live = page()) add(live->passes.voids, 1);
}

void Watch::end_step(int64_t begin_ns) noexcept {
  const int64_t now = os::now_ns();
  record({EventKind::kStep, 0, 0, begin_ns, now});
  LivePage* const live = page();
  if (live == nullptr) return;
  add(live->work.step_ns, now - begin_ns);
  add(live->work.steps, 1);
}

void Watch::end_save(int64_t begin_ns) noexcept {
  const int64_t now = os::now_ns();
  record({EventKind::kSave, 0, 0, begin_ns, now});
  LivePage* const live = page();
  if (live == nullptr) return;
  add(live->work.save_ns, now - begin_ns);
  add(live->work.saves, 1);
}

void Watch::end_wait(int32_t rank, int64_t begin_ns, int64_t end_ns) noexcept {
  record({EventKind::kWait, 0, 0, begin_ns, end_ns, 0, rank});
  if (page() != nullptr) live_->add_wait(rank, end_ns - begin_ns);
}

void Watch::end_gather(uint64_t number, int64_t begin_ns, bool of_all) noexcept {
  if (!is_on()) return;
  const Use use(*this);
  if (use.get() == nullptr) return;
  const int64_t now = os::now_ns();
  use.get()->record({EventKind::kGather, 0, static_cast<uint32_t>(number), begin_ns, now});
  const auto generation = static_cast<uint64_t>(generation_.load(std::memory_order_relaxed));
  if (of_all) use.get()->note_gather({generation << 40 | number, begin_ns, now});
}

}  // namespace ddp::trace
