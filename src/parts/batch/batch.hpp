// SPDX-License-Identifier: Apache-2.0
// The part of passes that the division of the global batch is: how this rank takes part and weighs (attendance.hpp), and
// which parts of the batch it works on before the ranks reduce (batch_parts.hpp).
// Threads: as PassPart.
// Tested by conformance/uneven_test.cpp and conformance/virtual_ranks_test.cpp.
#pragma once

#include <cstdint>
#include <memory>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "group/channels.hpp"
#include "parts/batch/attendance.hpp"
#include "parts/batch/batch_parts.hpp"
#include "pass/bucket_rules.hpp"
#include "pass/part.hpp"

namespace ddp::parts {

class Batch final : public pass::PassPart {
 public:
  /// Collective. What is passed outlives it. `uneven`: with uneven_inputs.
  Batch(const group::Channel& channel, const Parameters& table, const Plan& plan, uint64_t plan_hash,
        const pass::BucketRules& rules, bool uneven);

  [[nodiscard]] Attendance& attendance() noexcept { return attendance_; }
  [[nodiscard]] BatchParts& parts() noexcept { return parts_; }

  [[nodiscard]] pass::Traits traits() const noexcept override;
  void describe(collective::BucketSpec& spec) const override;
  [[nodiscard]] std::unique_ptr<collective::BucketOperation> prepare(const collective::BucketSpec& spec) override;
  void require(ddp_pass mode, pass::Role role) const override;
  void begin(pass::Opening& opening) override;
  void opened(const pass::Opening& opening) override;
  void fill(size_t bucket, collective::BucketHeader& mine) noexcept override;
  [[nodiscard]] bool conclude(const pass::Verdict& verdict) override;
  void add_missing(pass::MissingGradients& mine) const override;
  void end_part(const pass::Marks& marks, pass::MissingGradients missing) override;
  void closed(const pass::Closing& closing) noexcept override;
  void changed(pass::Change what) noexcept override;

 private:
  [[nodiscard]] bool is_widened(size_t bucket) const noexcept {
    return parts_.sums() != nullptr && parts_.sums()->is_widened(bucket);
  }

  const group::Channel& channel_;
  const Plan& plan_;
  BatchParts parts_;
  Attendance attendance_;
};

}  // namespace ddp::parts
