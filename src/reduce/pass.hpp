// One backward pass after another: which gradients are complete, which bucket may go, and what the ranks found out about it.
//
// Order is fixed: buckets are started in plan order by a cursor; a later bucket that is full early waits for its turn. All ranks thus
// issue the same sequence without talking about it (src/README.md, "Why order is fixed").
// Cost: a mark is two atomic operations and, while buckets are under way in caller mode, a bounded share of their work; nothing is allocated.
// Threads: mark_* from any; the rest from one thread at a time.
// Tested by ranks/pass_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bucket/plan.hpp"
#include "comm/group.hpp"
#include "comm/lane.hpp"
#include "comm/transport.hpp"
#include "ddp/backward.h"
#include "ddp/model.h"
#include "param/table.hpp"
#include "reduce/hook.hpp"

namespace ddp {

class Pass {
 public:
  /// Collective: prepares every bucket. Gradients in `table` have their addresses.
  Pass(Group& group, const Table& table, const ddp_model_options& options, Plan plan, uint64_t plan_hash,
       const Hook& hook);

  void begin(ddp_pass mode);
  void mark_ready(int32_t index);
  void mark_unused(int32_t index);
  /// Throws; the pass is over whatever the result.
  void end();
  [[nodiscard]] bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }

  /// False if the others reach into the gradient's memory, so that it cannot move.
  [[nodiscard]] bool set_address(int32_t index, std::byte* data);
  [[nodiscard]] bool is_marked(int32_t index) const noexcept;

  [[nodiscard]] bool has_reduced() const noexcept { return has_reduced_; }
  [[nodiscard]] bool was_used(int32_t index) const noexcept { return used_[static_cast<size_t>(index)] != 0; }
  void fill_stats(ddp_model_stats& stats) const noexcept;
  [[nodiscard]] std::string describe_plan() const;

 private:
  enum class Mark : uint32_t { kNone = 0, kReady = 1, kUnused = 2 };
  struct Bucket {
    std::unique_ptr<BucketOperation> operation;
    std::atomic<int32_t> pending{0};  // gradients of this pass that are still to come
    Note note;
  };
  struct Place {
    int32_t bucket = 0;
    int32_t piece = 0;
  };

  void mark(int32_t index, Mark what);
  void start_ready_buckets();
  void start_bucket(Bucket& bucket, const PlannedBucket& planned);
  void start_rest();
  void take_notes();
  void report_missing();
  void finish_stats() noexcept;
  [[nodiscard]] uint32_t mark_value(Mark what) const noexcept { return epoch_ << 2 | static_cast<uint32_t>(what); }

  Group& group_;
  const Table& table_;
  const ddp_model_options options_;
  const Plan plan_;
  std::vector<Place> places_;  // by parameter
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<std::atomic<uint32_t>> marks_;  // epoch and Mark, by parameter
  std::vector<uint8_t> contributes_;          // since the last reduction, by parameter
  std::vector<uint8_t> used_;                 // by any rank in the last reduction

  std::atomic<bool> open_{false};
  ddp_pass mode_ = DDP_PASS_REDUCE;
  uint32_t epoch_ = 0;
  bool has_reduced_ = false;
  bool incomplete_ = false;  // some rank missed a gradient in this pass

  std::mutex starting_;  // guards next_ and the order of starting
  size_t next_ = 0;
  Lane lane_;

  int64_t begin_ns_ = 0;
  int64_t drained_ns_ = 0;  // time of the caller inside end()
  int64_t sent_before_ = 0;  // by the transport, before the pass
  ddp_model_stats stats_{};
};

}  // namespace ddp
