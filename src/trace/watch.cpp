// SPDX-License-Identifier: Apache-2.0
#include "trace/watch.hpp"

#include "core/attempt.hpp"
#include "os/clock.hpp"
#include "os/log.hpp"

namespace ddp::trace {

std::shared_ptr<Watch> Watch::of_launcher(const char* folder, int32_t number, const std::string& host,
                                          int32_t size) noexcept {
  if (folder == nullptr || *folder == '\0') return nullptr;
  std::shared_ptr<Watch> watch;
  const std::optional<Error> failed = try_to([&] {
    std::unique_ptr<LiveFile> live = LiveFile::claim(folder, number, host, size);
    if (live != nullptr) watch = std::make_shared<Watch>(std::move(live));
  });
  if (failed) os::log(DDP_LOG_WARNING, "this rank cannot be watched in DDP_WATCH_DIR: %s", failed->what());
  return watch;
}

void Watch::regroup(int32_t rank, int32_t size, int64_t generation) noexcept {
  if (is_silent()) return;
  put(live_->page().place.rank, rank);
  put(live_->page().place.size, size);
  put(live_->page().place.generation, generation);
}

void Watch::end_recovery() noexcept {
  if (!is_silent()) add(live_->page().place.recoveries, 1);
}

void Watch::enter(int32_t call) noexcept {
  if (is_silent()) return;
  put(live_->page().place.call, call);
  put(live_->page().place.in_call, 1);
  put(live_->page().place.call_since_ns, os::now_ns());
}

void Watch::leave() noexcept {
  if (is_silent()) return;
  put(live_->page().place.in_call, 0);
  put(live_->page().place.call_since_ns, os::now_ns());
}

void Watch::end_pass(const PassNumbers& numbers) noexcept {
  if (is_silent()) return;
  add(live_->page().passes.backward_ns, numbers.backward_ns);
  add(live_->page().passes.comm_ns, numbers.comm_ns);
  add(live_->page().passes.exposed_ns, numbers.exposed_ns);
  add(live_->page().passes.sent_bytes, numbers.sent_bytes);
  put(live_->page().passes.gradient_bytes, numbers.gradient_bytes);
  put(live_->page().passes.buckets, numbers.buckets);
  put(live_->page().passes.largest_bucket, numbers.largest_bucket);
  put(live_->page().passes.smallest_bucket, numbers.smallest_bucket);
  put(live_->page().passes.last_at_ns, os::now_ns());
  add(live_->page().passes.count, 1);
}

void Watch::void_pass() noexcept {
  if (!is_silent()) add(live_->page().passes.voids, 1);
}

void Watch::end_step(int64_t begin_ns) noexcept {
  if (is_silent()) return;
  add(live_->page().work.step_ns, os::now_ns() - begin_ns);
  add(live_->page().work.steps, 1);
}

void Watch::end_save(int64_t begin_ns) noexcept {
  if (is_silent()) return;
  add(live_->page().work.save_ns, os::now_ns() - begin_ns);
  add(live_->page().work.saves, 1);
}

}  // namespace ddp::trace
