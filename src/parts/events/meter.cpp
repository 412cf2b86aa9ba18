// SPDX-License-Identifier: Apache-2.0
#include "parts/events/meter.hpp"

#include <algorithm>

#include "control/control.hpp"
#include "group/group.hpp"
#include "os/clock.hpp"
#include "trace/watch.hpp"

namespace ddp::parts {

Meter::Meter(const group::Channel& channel, const Parameters& table, const Plan& plan) : channel_(channel) {
  stats_.parameters = std::ssize(table.present());
  stats_.buckets = static_cast<int64_t>(plan.size());
  for (const Parameter& parameter : table.parameters()) {
    stats_.gradient_bytes += parameter.grad.bytes();
    stats_.elements += parameter.grad.count;
  }
  for (const PlannedBucket& bucket : plan) {
    const int64_t bytes = bucket.count * dtype_size(bucket.dtype);
    bucket_bytes_.largest = std::max(bucket_bytes_.largest, bytes);
    bucket_bytes_.smallest = bucket_bytes_.smallest == 0 ? bytes : std::min(bucket_bytes_.smallest, bytes);
  }
}

void Meter::begin(pass::Opening&) {
  begin_ns_ = os::now_ns();
  sent_before_ = channel_.transport().sent_bytes();
  channel_.group().control().set_progress(passes(), 0);
}

void Meter::fill(size_t bucket, collective::BucketHeader&) noexcept {
  if (bucket == 0) start_ns_ = os::now_ns();
}

bool Meter::conclude(const pass::Verdict& verdict) {
  drained_ns_ = verdict.waited_ns;
  if (trace::Watch* const watch = verdict.is_void ? channel_.group().calls().watch() : nullptr) watch->void_pass();
  return true;
}

void Meter::closed(const pass::Closing& closing) noexcept {
  if (closing.mode != DDP_PASS_REDUCE || closing.outcome != pass::Outcome::kGood) return;
  count(closing.queue);
  tell_watch();
}

void Meter::count(collective::ProgressQueue& queue) noexcept {
  stats_.passes += 1;
  stats_.backward_ns = os::now_ns() - begin_ns_;
  stats_.comm_ns = channel_.size() == 1 ? 0 : std::max<int64_t>(0, queue.last_done_ns() - start_ns_);
  stats_.exposed_ns = std::min(stats_.comm_ns, drained_ns_ + queue.take_poked_ns());
  stats_.sent_bytes = channel_.transport().sent_bytes() - sent_before_;
  stats_.total_sent_bytes += stats_.sent_bytes;
  stats_.total_backward_ns += stats_.backward_ns;
  stats_.total_comm_ns += stats_.comm_ns;
  stats_.total_exposed_ns += stats_.exposed_ns;
}

void Meter::tell_watch() const noexcept {
  trace::Watch* const watch = channel_.group().calls().watch();
  if (watch == nullptr) return;
  watch->end_pass({stats_.backward_ns, stats_.comm_ns, stats_.exposed_ns, stats_.sent_bytes, stats_.gradient_bytes,
                   stats_.buckets, bucket_bytes_.largest, bucket_bytes_.smallest});
}

void Meter::fill(ddp_model_stats& stats) const noexcept {
  const int64_t size = stats.struct_size;
  stats = stats_;
  stats.struct_size = size;
}

}  // namespace ddp::parts
