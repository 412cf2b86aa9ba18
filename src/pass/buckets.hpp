// SPDX-License-Identifier: Apache-2.0
// The buckets of a model's passes: what each asks of the transport, which pieces are still to come, and the one order in
// which they start.
//
// Order is fixed: buckets start in plan order; a later one that is complete early waits for its turn. All ranks thus issue
// the same sequence without talking about it (src/README.md, "Why order is fixed").
// Threads: count_mark, add_stream and start_* from any; the rest from one thread at a time.
// Tested by conformance/pass_test.cpp and conformance/split_parameters_test.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/float_environment.hpp"
#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "exchange/ranks.hpp"
#include "exchange/transport.hpp"
#include "pass/bucket_rules.hpp"
#include "pass/part.hpp"

namespace ddp::pass {

// The layout of the program's gradients in memory that the group gave out on a GPU, and which buckets can be reduced there.
//
// A bucket is one block if its gradients are contiguous in one piece of such memory. There are two
// kinds. In the plan's order and at its offsets, so that it has no padding either: then it has the plan's length, and each
// rank decides alone. In any order: then NCCL sums it unchanged, if it has the same layout on all ranks, which they check
// with each other. A gap is never written, because the program may use it. Gradients that are reduced in place cannot move.
// Collective once for each model with gradients on GPUs; costs nothing in a pass.
class GradientLayout {
 public:
  enum class Block {
    kNone,     // it is packed
    kPlanned,  // as the plan has it
    kDense     // in another order, alike on all ranks
  };

  /// Collective if some bucket is on a GPU. Gradients in `table` have their addresses.
  GradientLayout(const collective::Ranks& ranks, const Parameters& table, const Plan& plan);

  [[nodiscard]] bool some_on_gpu() const noexcept { return some_on_gpu_; }
  [[nodiscard]] Block of(size_t bucket) const noexcept { return blocks_[bucket]; }

 private:
  bool some_on_gpu_;           // buckets
  std::vector<Block> blocks_;  // by bucket
};

class Buckets {
 public:
  /// What the buckets are made of; all of it outlives them.
  struct Of {
    const collective::Ranks& ranks;
    const Parameters& table;  // gradients have their addresses
    const Plan& plan;
    uint64_t plan_hash;
    BucketRules rules;
    bool partial_allowed;  // what a rank contributes is known only when the pass ends
    std::vector<PassPart*> parts;
  };
  /// Collective: prepares every bucket.
  explicit Buckets(Of of);

  [[nodiscard]] const Plan& plan() const noexcept { return of_.plan; }
  [[nodiscard]] size_t size() const noexcept { return of_.plan.size(); }
  /// What orders streams where some of them are exchanged on GPUs; else NULL.
  [[nodiscard]] collective::GpuSide* gpu() const noexcept {
    return layout_.some_on_gpu() ? of_.ranks.transport().gpu().get() : nullptr;
  }
  /// What a bucket asks of the transport, with the gradients where they are now.
  [[nodiscard]] collective::BucketSpec describe(size_t bucket) const;
  [[nodiscard]] std::string describe_plan() const;
  /// The places of a gradient in the plan.
  [[nodiscard]] std::span<const PiecePlace> places(int32_t index) const noexcept { return places_.of(index); }
  [[nodiscard]] const PlannedPiece& piece(const PiecePlace& place) const noexcept {
    return of_.plan[static_cast<size_t>(place.bucket)].pieces[static_cast<size_t>(place.piece)];
  }
  /// False if the others reach into the gradient's memory, so that it cannot move.
  [[nodiscard]] bool set_address(int32_t index, std::byte* data) noexcept;

  /// `reduces`: the parts choose the operations of this pass.
  void begin_pass(bool reduces) noexcept;
  /// Another piece is complete. True: it was the last one of its bucket.
  [[nodiscard]] bool count_mark(size_t bucket) noexcept {
    return pending_[bucket].fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  [[nodiscard]] bool is_complete(size_t bucket) const noexcept {
    return pending_[bucket].load(std::memory_order_acquire) == 0;
  }
  /// The gradients of the bucket were written on this stream of a GPU. In host memory nothing is ordered by streams.
  void add_stream(size_t bucket, void* stream) {
    if (layout_.some_on_gpu() && of_.plan[bucket].on_gpu) note_stream(bucket, stream);
  }
  /// Calls begin(bucket) for each bucket that is complete and whose turn it is.
  template <class Begin>
  void start_complete(const Begin& begin) {
    const std::lock_guard lock(starting_);
    size_t end = next_;
    while (end < size() && is_complete(end)) ++end;
    if (next_ == end) return;
    const StandardFloats floats;  // marking, which calls this, holds none
    start_all(end, begin);
  }
  /// For all that are left. What was not marked was last written on `stream`.
  template <class Begin>
  void start_rest(void* stream, const Begin& begin) {
    const std::lock_guard lock(starting_);
    for (size_t bucket = next_; bucket < size(); ++bucket) add_stream(bucket, stream);
    start_all(size(), begin);
  }
  /// All are done: gradients to which this rank does not contribute are written in the order of `stream`, on which they were
  /// used last.
  void write_unused(void* stream) {
    if (!layout_.some_on_gpu() || !of_.partial_allowed) return;
    for (size_t bucket = 0; bucket < size(); ++bucket)
      if (of_.plan[bucket].on_gpu) buckets_[bucket]->active->write_unused(stream);
  }
  /// A pass on a GPU ends without a reduction: the next one comes after the streams of its marks, which may be gone by then.
  /// So does what comes on `stream`.
  void order_marks(void* stream);
  /// Calls fn(whether a bucket has started) while none starts.
  template <class Fn>
  void between_starts(const Fn& fn) {
    const std::lock_guard lock(starting_);
    fn(next_ > 0);
  }
  /// Its turn has come: behind the streams that it knows of. `mine`: its header, filled in.
  collective::BucketOperation& start(size_t bucket);
  /// This rank's header of the bucket.
  [[nodiscard]] collective::BucketHeader& mine(size_t bucket) noexcept { return buckets_[bucket]->header; }
  /// All ranks', once the bucket is done.
  [[nodiscard]] const collective::BucketHeader& joined(size_t bucket) const noexcept {
    return buckets_[bucket]->active->header();
  }

 private:
  [[nodiscard]] std::unique_ptr<collective::BucketOperation> prepare(size_t bucket) const;

  struct Bucket {
    std::unique_ptr<collective::BucketOperation> operation;
    collective::BucketOperation* active = nullptr;  // that of this pass
    collective::BucketHeader header;
    std::mutex streaming;        // guards streams
    std::vector<void*> streams;  // of a GPU, on which its gradients were written since the last reduction
  };

  void note_stream(size_t bucket, void* stream);
  template <class Fn>
  void take_streams(size_t bucket, const Fn& fn) {
    Bucket& of = *buckets_[bucket];
    const std::lock_guard lock(of.streaming);
    for (void* const stream : of.streams) fn(stream);
    of.streams.clear();
  }
  /// The buckets from `begin` to `end` start together: their streams become those of the first one on a GPU.
  void join_streams(size_t begin, size_t end);
  template <class Begin>
  void start_all(size_t end, const Begin& begin) {
    if (layout_.some_on_gpu()) join_streams(next_, end);
    for (; next_ < end; ++next_) begin(next_);
  }

  const Of of_;
  const PlanPlaces places_;
  const GradientLayout layout_;
  std::vector<std::atomic<int32_t>> pending_;  // by bucket: pieces of this pass that are still to come
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::mutex starting_;  // guards next_ and the order of starting
  size_t next_ = 0;
};

}  // namespace ddp::pass
