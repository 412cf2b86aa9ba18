// SPDX-License-Identifier: Apache-2.0
// The parts of the global batch that this rank works on in a step (core/virtual_ranks.hpp): which one is next, what those
// that are closed have come to, and their sums. Without virtual ranks there is nothing to do: a step is one pass. Where
// every rank has one part there are no sums. Threads: as Pass. Tested by conformance/virtual_ranks_test.cpp.
#pragma once

#include <cstdint>
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
#include "parts/batch/part_buffers.hpp"
#include "parts/batch/partial_sums.hpp"
#include "pass/incomplete_pass.hpp"
#include "pass/marks.hpp"

namespace ddp::parts {

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
