// What one member of a chain adds to a sum, and where the result goes. The chain (or a direct exchange) moves spans of a flat array of `count` elements and
// knows nothing of gradients: one rank's pieces, a part that is kept, or (a hierarchy) the spans of all ranks of a host are each one
// Contribution. All members of a chain give the same rule and count.
//
// Threads: the chain's. Nothing here allocates after construction.
// Tested by unit/comm/contribution_test.cpp and unit/comm/chain_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/transport.hpp"
#include "device/cpu/reduce.hpp"

namespace ddp {

/// Elements first to first + count.
struct Span {
  int64_t first = 0;
  int64_t count = 0;
};

/// The sum of all members before this one. It may be used as scratch by whoever gets it.
struct Incoming {
  void* data = nullptr;  // NULL: this is the first member
  bool raw = false;      // elements of the first member as they are, not yet in the accumulator type
  double weight = 1;     // of raw elements
};

class Contribution {
 public:
  Contribution(const cpu::ReduceRule& rule, int64_t count, int32_t inputs)
      : rule_(rule), count_(count), tallies_(static_cast<size_t>(inputs)) {}
  virtual ~Contribution() = default;

  [[nodiscard]] const cpu::ReduceRule& rule() const noexcept { return rule_; }
  [[nodiscard]] int64_t count() const noexcept { return count_; }

  /// What each of this member's inputs (one, or one for each rank of its host) says, in rank order. Before the chain begins.
  [[nodiscard]] std::vector<Tally>& tallies() noexcept { return tallies_; }
  /// The sum of all weights, before the result is finished.
  void set_weight_sum(double sum) noexcept { rule_.weight_sum = sum; }

  /// The own elements as they travel, either where they lie or copied to `scratch`. They stay unchanged until the result of this span
  /// arrives. For the first member of a chain whose first hop is raw, and for every member of a direct exchange.
  [[nodiscard]] virtual const void* own(Span span, void* scratch) noexcept = 0;
  /// out = in + own, in the accumulator type, where own counts. `out` does not overlap `in`.
  virtual void add(Incoming in, void* out, Span span) noexcept = 0;
  /// The last member: add the own elements, divide, round. `result` holds elements as they travel (rule().travel_dtype()); it may be
  /// landing(span).
  virtual void finish(Incoming in, void* result, Span span) noexcept = 0;

  /// Memory where the result of the span may lie at once and for good; NULL: give it to deliver().
  [[nodiscard]] virtual void* landing(Span span) noexcept = 0;
  virtual void deliver(const void* result, Span span) noexcept = 0;
  /// What all members know of the bucket, before the first result of it is placed anywhere.
  virtual void learn(const Note& note) noexcept { static_cast<void>(note); }
  /// The member at `position` and those below it need elements 0 to this of the result. Not decreasing in position; equal on all.
  [[nodiscard]] virtual int64_t wanted(int32_t position) const noexcept {
    static_cast<void>(position);
    return count_;
  }

  /// Inputs that count, with what came from below, as one sum takes them.
  class Terms {
   public:
    explicit Terms(size_t most) : elements_(most), weights_(most) {}
    void clear() noexcept { count_ = 0, weighted_ = false; }
    void add(const void* elements, double weight) noexcept;
    [[nodiscard]] const void* const* elements() const noexcept { return elements_.data(); }
    [[nodiscard]] int32_t count() const noexcept { return count_; }
    [[nodiscard]] const double* weights() const noexcept { return weighted_ ? weights_.data() : nullptr; }

   private:
    std::vector<const void*> elements_;
    std::vector<double> weights_;
    int32_t count_ = 0;
    bool weighted_ = false;
  };
  /// Direct exchange: the whole sum of elements as own() gives them, as it travels. `result` may be one of the terms, unless the rule
  /// is wired.
  void sum(const Terms& terms, void* result, int64_t count) const noexcept;
  /// Direct exchange: each member needs its own part of the result alone (a count() that is the number of members times the part).
  [[nodiscard]] virtual bool keeps_part() const noexcept { return false; }

 protected:
  /// The steps for elements that lie together: `terms` behind in.data (unless that is raw, which is the first of the terms then).
  void add_terms(Incoming in, const Terms& terms, void* out, int64_t count) const noexcept;
  void finish_terms(Incoming in, const Terms& terms, void* result, int64_t count) const noexcept;
  /// Do elements travel in another type than they lie in?
  [[nodiscard]] bool is_packed() const noexcept { return rule_.travel_dtype() != rule_.dtype; }
  [[nodiscard]] double weight_of(size_t input) const noexcept { return tallies_[input].weight; }

 private:
  cpu::ReduceRule rule_;
  int64_t count_;
  std::vector<Tally> tallies_;
};

/// The pieces of a bucket, or of a plain tensor, reduced in place. A piece that no rank uses is left untouched.
class PieceContribution : public Contribution {
 public:
  PieceContribution(const cpu::ReduceRule& rule, const std::vector<BucketSpec::Piece>& pieces);

  /// New address of a piece.
  void set_address(int32_t piece, std::byte* data) noexcept;

  [[nodiscard]] const void* own(Span span, void* scratch) noexcept override;
  void add(Incoming in, void* out, Span span) noexcept override;
  void finish(Incoming in, void* result, Span span) noexcept override;
  [[nodiscard]] void* landing(Span span) noexcept override;
  void deliver(const void* result, Span span) noexcept override;
  void learn(const Note& note) noexcept override;

 private:
  struct Run {
    std::byte* data = nullptr;
    int64_t first = 0;  // of the flat array
    int64_t count = 0;
    bool used = true;   // by some rank
  };
  /// Calls fn(run, own memory, elements from the start of the span, count) for each run that the span touches.
  template <class Fn>
  void each(Span span, const Fn& fn) const noexcept;
  [[nodiscard]] size_t run_at(int64_t element) const noexcept;
  [[nodiscard]] const Terms& terms_of(Incoming in, const void* mine) noexcept;

  int64_t size_;         // bytes of an element
  int64_t carry_size_;   // of an accumulator
  int64_t travel_size_;  // of an element under way
  std::vector<Run> runs_;
  Terms terms_{2};
};

/// A plain tensor of which this member keeps one part: reduce-scatter. The input is only read.
class PartContribution : public Contribution {
 public:
  /// `input` holds `size` parts of `part` elements; the part at `position` goes to `output` (which may be that part of the input).
  PartContribution(const cpu::ReduceRule& rule, const std::byte* input, std::byte* output, int64_t part, int32_t size,
                   int32_t position);

  [[nodiscard]] const void* own(Span span, void* scratch) noexcept override;
  void add(Incoming in, void* out, Span span) noexcept override;
  void finish(Incoming in, void* result, Span span) noexcept override;
  [[nodiscard]] void* landing(Span span) noexcept override;
  void deliver(const void* result, Span span) noexcept override;
  [[nodiscard]] int64_t wanted(int32_t position) const noexcept override { return (position + 1) * part_; }
  [[nodiscard]] bool keeps_part() const noexcept override { return true; }

 private:
  const std::byte* input_;
  std::byte* output_;
  int64_t part_;
  int64_t begin_;  // first element of the own part
  int64_t size_;   // bytes of an element
  Terms terms_{2};
};

}  // namespace ddp
