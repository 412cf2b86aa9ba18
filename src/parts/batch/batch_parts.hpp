// SPDX-License-Identifier: Apache-2.0
// The parts of the global batch that this rank works on in a step (core/virtual_ranks.hpp): which one is next, what those
// that are closed have come to, and their sums. Without virtual ranks there is nothing to do: a step is one pass. Where
// every rank has one part there are no sums. Threads: as Pass. Tested by conformance/virtual_ranks_test.cpp.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "core/virtual_ranks.hpp"
#include "ddp/backward.h"
#include "exchange/bucket_header.hpp"
#include "exchange/transport.hpp"
#include "group/group.hpp"
#include "parts/batch/partial_sums.hpp"
#include "pass/incomplete_pass.hpp"
#include "pass/marks.hpp"

namespace ddp::parts {

// Buffers of a model (running statistics) where the global batch has parts: every part starts from those of the step's
// begin, and in the end those of the rank's first part are kept. So rank 0 has what virtual rank 0 made of them, at any
// number of ranks. A step that is void, or that a recovery takes back, leaves none behind, also on a rank with one part.
// Threads: as Pass. Allocates when it is made.
class PartBuffers {
 public:
  explicit PartBuffers(const Parameters& table) : table_(table) {
    size_t bytes = 0;
    for (const Buffer& buffer : table.buffers()) bytes += static_cast<size_t>(buffer.value.bytes());
    last_.resize(bytes);
    before_.resize(bytes);
    first_.resize(bytes);
    begin_step();
  }

  /// The buffers are those with which a step begins.
  void begin_step() noexcept {
    save(before_);
    last_ = before_;
    has_first_ = false;
  }
  /// `is_first`: of the step.
  void end_part(bool is_first) noexcept {
    if (is_first) save(first_);
    has_first_ = true;
    restore(before_);
  }
  /// The last part has ended.
  void end_step(bool is_void) noexcept {
    if (is_void) {
      restore(before_);
      return begin_step();
    }
    if (has_first_) restore(first_);
    last_.swap(before_);
    save(before_);
    has_first_ = false;
  }
  /// The group has broken, and ranks continue from the last step that all have made. `awaits_step`: the last pass ended
  /// well, and the parameters do not have its step.
  void go_back(bool awaits_step) const noexcept { restore(awaits_step ? last_ : before_); }

 private:
  void save(std::vector<std::byte>& to) const noexcept {
    each([&, at = to.data()](std::byte* data, size_t bytes) mutable {
      std::memcpy(at, data, bytes);
      at += bytes;
    });
  }
  void restore(const std::vector<std::byte>& from) const noexcept {
    each([&, at = from.data()](std::byte* data, size_t bytes) mutable {
      std::memcpy(data, at, bytes);
      at += bytes;
    });
  }
  template <class Fn>
  void each(Fn fn) const noexcept {
    for (const Buffer& buffer : table_.buffers())
      if (buffer.value.bytes() > 0) fn(buffer.value.data, static_cast<size_t>(buffer.value.bytes()));
  }

  const Parameters& table_;
  std::vector<std::byte> last_;    // before the last step
  std::vector<std::byte> before_;  // before this one
  std::vector<std::byte> first_;   // after the first part
  bool has_first_ = false;
};

class BatchParts {
 public:
  /// `rules`: of each bucket's gradients. Collective.
  BatchParts(group::Group& group, const Parameters& table, const Plan& plan, const std::vector<cpu::ReduceRule>& rules);

  [[nodiscard]] const VirtualRanks& ranks() const noexcept { return ranks_; }
  /// Has some rank several parts? Then what ranks exchange are sums.
  [[nodiscard]] bool are_shared() const noexcept { return ranks_.shared; }
  /// NULL unless shared.
  [[nodiscard]] PartialSums* sums() const noexcept { return sums_.get(); }
  [[nodiscard]] bool is_first() const noexcept { return closed_.empty(); }
  /// Is the pass that comes the last of the step on this rank?
  [[nodiscard]] bool is_last() const noexcept { return static_cast<int32_t>(closed_.size()) + 1 == ranks_.count; }
  /// The virtual rank of that pass.
  [[nodiscard]] int32_t position() const noexcept { return ranks_.first + static_cast<int32_t>(closed_.size()); }
  /// Throws INVALID_STATE or NOT_SUPPORTED if such a pass is not what comes next.
  void require(ddp_pass mode) const;

  /// The pass that ends was a part. `mine`: how it counts.
  void close(const collective::Participation& mine, const pass::Marks& marks) noexcept;
  /// The same, of a part in which gradients are missing: the step is void on all ranks, when it is reduced.
  void close_void(pass::MissingGradients missing);
  [[nodiscard]] const std::optional<pass::MissingGradients>& missing() const noexcept { return missing_; }

  // The pass that reduces. `last`: how its own gradients count.
  [[nodiscard]] collective::Participation join(const collective::Participation& last) const noexcept;
  [[nodiscard]] bool uses(int32_t parameter) const noexcept { return used_[static_cast<size_t>(parameter)] != 0; }
  /// Before the bucket starts.
  void finish(size_t bucket, const collective::Participation& last) noexcept;

  /// The step is over: buffers are those of the first part, or, if it was void, those of before the step.
  void end_step(bool is_void) noexcept;
  /// The group has broken; `awaits_step` as of PartBuffers.
  void leave_group(bool awaits_step) noexcept;
  /// Parameters and buffers are others now.
  void restart() noexcept;

 private:
  void forget() noexcept;

  const VirtualRanks ranks_;
  std::unique_ptr<PartialSums> sums_;
  std::unique_ptr<PartBuffers> buffers_;  // NULL without virtual ranks
  std::vector<collective::Participation> closed_;
  std::vector<uint8_t> used_;  // by parameter, in parts that are closed
  std::optional<pass::MissingGradients> missing_;
};

}  // namespace ddp::parts
