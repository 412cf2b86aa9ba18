// SPDX-License-Identifier: Apache-2.0
#include "parts/events/pass_events.hpp"

#include <utility>

#include "control/call_state.hpp"
#include "group/gpu_times.hpp"
#include "group/group.hpp"
#include "os/clock.hpp"
#include "trace/watch.hpp"

namespace ddp::parts {

PassEvents::PassEvents(group::Group& group, const Parameters& table, const Plan& plan)
    : group_(group), calls_(group.calls()), table_(table), plan_(plan), first_marks_(plan.size()) {}

void PassEvents::begin(pass::Opening& opening) {
  on_ = record_pass(opening.number);
  if (!on_) return;
  group::time_gpu(group_);
  opening.tracer = this;
}

bool PassEvents::record_pass(int64_t pass) {
  trace::Watch* const watch = calls_.watch();
  if (watch == nullptr || !watch->is_on()) return false;
  const trace::Watch::Use use(*watch);
  if (use.get() == nullptr) return false;
  if (introduced_ != watch->traces()) introduce(*use.get());
  pass_ = static_cast<uint32_t>(pass);
  begin_ns_ = os::now_ns();
  for (std::atomic<int64_t>& first : first_marks_) first.store(0, std::memory_order_relaxed);
  return true;
}

void PassEvents::introduce(trace::Recorder& recorder) {
  introduced_ = calls_.watch()->traces();
  model_ = calls_.watch()->next_model();
  for (const int32_t index : table_.present())
    recorder.name("p " + std::to_string(model_) + " " + std::to_string(index) + " " + table_.parameter(index).name);
}

trace::Event PassEvents::event(trace::EventKind kind, uint32_t number) const noexcept {
  trace::Event event;
  event.kind = kind;
  event.model = model_;
  event.number = number;
  event.pass = pass_;
  return event;
}

void PassEvents::marked(int32_t parameter, std::span<const PiecePlace> places) noexcept {
  trace::Event marked = event(trace::EventKind::kMark, static_cast<uint32_t>(parameter));
  marked.begin_ns = marked.end_ns = os::now_ns();
  for (const PiecePlace& place : places) {
    int64_t none = 0;
    first_marks_[static_cast<size_t>(place.bucket)].compare_exchange_strong(none, marked.begin_ns,
                                                                            std::memory_order_relaxed);
  }
  for (const PiecePlace& place : places) {
    if (marked.peer < 0) marked.peer = place.bucket;
    if (place.bucket == marked.peer + marked.bytes + 1) ++marked.bytes;
  }
  calls_.watch()->record(marked);
}

// One bucket starts after the other.
const trace::Event* PassEvents::starting(size_t bucket) noexcept {
  started_ = event(trace::EventKind::kWaiting, static_cast<uint32_t>(bucket));
  started_.bytes = plan_[bucket].count * dtype_size(plan_[bucket].dtype);
  const int64_t first = first_marks_[bucket].load(std::memory_order_relaxed);
  started_.end_ns = os::now_ns();
  started_.begin_ns = first != 0 ? first : started_.end_ns;
  calls_.watch()->record(started_);
  started_.kind = trace::EventKind::kReducing;
  started_.begin_ns = started_.end_ns;
  return &started_;
}

void PassEvents::closed(const pass::Closing&) noexcept {
  if (!std::exchange(on_, false)) return;
  trace::Event whole = event(trace::EventKind::kPass, pass_);
  whole.begin_ns = begin_ns_;
  calls_.watch()->record_end(whole);
  group::collect_gpu_times(group_);
}

}  // namespace ddp::parts
