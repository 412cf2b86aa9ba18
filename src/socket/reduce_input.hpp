// SPDX-License-Identifier: Apache-2.0
// What one member adds to an exchange and where the results go: the pieces of a bucket or a tensor, one part of a
// tensor, or the arrays of all ranks of a host (hosts). The array is seen as one flat span of elements; all
// members have the same rule and count.
//
// Threads: the exchange's. Nothing here allocates after construction.
// Tested by unit/exchange/reduce_input_test.cpp and unit/exchange/collectives_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/cpu/reduce.hpp"
#include "exchange/transport.hpp"
#include "socket/shares.hpp"
#include "socket/slicing.hpp"

namespace ddp::socket {

class ReduceInput {
 public:
  ReduceInput(const cpu::ReduceRule& rule, int64_t count, size_t ranks)
      : rule_(rule), count_(count), participations_(ranks) {}
  virtual ~ReduceInput() = default;

  [[nodiscard]] const cpu::ReduceRule& rule() const noexcept { return rule_; }
  [[nodiscard]] int64_t count() const noexcept { return count_; }

  /// The announcements of this member's ranks, in the order of the ranks. Before the exchange.
  [[nodiscard]] std::vector<collective::Participation>& participations() noexcept { return participations_; }
  /// The sum of all weights, before anything is added.
  void set_weight_sum(double sum) noexcept { rule_.weight_sum = sum; }

  /// The member's index-th node of the sum as it is sent, either in place or formed in `scratch`. The array stays unchanged
  /// until the result of this span arrives.
  [[nodiscard]] virtual const void* node(size_t index, Span span, void* scratch) noexcept = 0;
  /// Where nothing is added: the owner's values of a span that belongs to this member, in place or copied to
  /// `scratch`.
  [[nodiscard]] virtual const void* values(Span span, void* scratch) noexcept { return node(0, span, scratch); }

  /// Memory where the result of the span may be put at once and for good; NULL: give it to deliver().
  [[nodiscard]] virtual void* landing(Span span) noexcept = 0;
  /// The result, as it is sent (rule().travel_dtype()).
  virtual void deliver(const void* result, Span span) noexcept = 0;
  /// What all members know of the bucket, before the first result of it is placed anywhere.
  virtual void learn(const collective::BucketHeader& header) noexcept { static_cast<void>(header); }

 protected:
  /// Are elements sent in another type than they have in memory?
  [[nodiscard]] bool is_packed() const noexcept { return rule_.travel_dtype() != rule_.dtype; }
  /// By which the rank's elements are multiplied; 0: they do not count.
  [[nodiscard]] double weight_of(size_t rank) const noexcept {
    const double weight = participations_[rank].weight;
    return rule_.summed && weight > 0 ? 1 : weight;
  }

 private:
  cpu::ReduceRule rule_;
  int64_t count_;
  std::vector<collective::Participation> participations_;
};

/// The pieces of a bucket, or of a plain tensor, in place. A piece that no rank uses is left untouched.
class PieceInput : public ReduceInput {
 public:
  PieceInput(const cpu::ReduceRule& rule, const std::vector<collective::BucketSpec::Piece>& pieces);

  /// New address of a piece.
  void set_address(int32_t piece, std::byte* data) noexcept;

  [[nodiscard]] const void* node(size_t index, Span span, void* scratch) noexcept override;
  [[nodiscard]] void* landing(Span span) noexcept override;
  void deliver(const void* result, Span span) noexcept override;
  void learn(const collective::BucketHeader& header) noexcept override;

 protected:
  struct Run {
    std::byte* data = nullptr;
    int64_t first = 0;  // of the flat array
    int64_t count = 0;
    int32_t piece = 0;
    bool used = true;  // by some rank
  };
  [[nodiscard]] bool is_used(int32_t piece) const noexcept { return runs_[static_cast<size_t>(piece)].used; }
  /// Calls fn(run, own memory, elements from the start of the span, count) for each run that the span touches.
  template <class Fn>
  void each(Span span, const Fn& fn) const noexcept;

 private:
  [[nodiscard]] size_t run_at(int64_t element) const noexcept;

  int64_t size_;         // bytes of an element
  int64_t travel_size_;  // of an element under way
  std::vector<Run> runs_;
};

/// The slices of a sharded optimizer: `work` sees the own slice, when its sum is complete or before its values are sent.
class SliceInput final : public PieceInput {
 public:
  /// `own`: this rank's spans; it outlives this.
  SliceInput(const cpu::ReduceRule& rule, const std::vector<collective::BucketSpec::Piece>& pieces,
             const std::vector<OwnedSpan>& own, collective::SliceWork work);

  /// Does the work on the used part of the own slice.
  void work() noexcept;
  /// The values of an own span are about to be sent: does the work on it before.
  [[nodiscard]] const void* values(Span span, void* scratch) noexcept override;

 private:
  const std::vector<OwnedSpan>& own_;
  collective::SliceWork work_;
};

/// A plain tensor of which this member keeps one part: reduce-scatter. The input is only read.
class PartInput final : public ReduceInput {
 public:
  /// `input` holds `size` parts of `part` elements; the part at `position` goes to `output` (which may be that part of the
  /// input).
  PartInput(const cpu::ReduceRule& rule, const std::byte* input, std::byte* output, int64_t part, int32_t size,
            int32_t position);

  [[nodiscard]] const void* node(size_t index, Span span, void* scratch) noexcept override;
  [[nodiscard]] void* landing(Span span) noexcept override;
  void deliver(const void* result, Span span) noexcept override;

 private:
  const std::byte* input_;
  std::byte* output_;
  int64_t part_;
  int64_t begin_;  // first element of the own part
  int64_t size_;   // bytes of an element
};

/// What each rank owns of the flat array of a bucket.
[[nodiscard]] FlatOwnership flat_slices(const Ownership& ownership,
                                        const std::vector<collective::BucketSpec::Piece>& pieces);

}  // namespace ddp::socket
