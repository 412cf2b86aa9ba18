// SPDX-License-Identifier: Apache-2.0
// The part of passes that a hook on copies of the buckets is: makes the operations of the buckets, and gives them to the
// program where it pulls them.
// Threads: as PassPart; next() and finish() as HookOperation.
// Tested by conformance/hook_test.cpp and capi/hook_test.c.
#pragma once

#include <memory>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "parts/hooks/hook_operation.hpp"
#include "pass/part.hpp"

namespace ddp::parts {

class HookedBuckets final : public pass::PassPart {
 public:
  /// Collective. `plan` and `table` outlive it.
  HookedBuckets(const group::Channel& channel, const Hook& hook, ddp_reduce reduce, const Plan& plan,
                const Parameters& table);

  [[nodiscard]] pass::Traits traits() const noexcept override;
  [[nodiscard]] std::unique_ptr<collective::BucketOperation> prepare(const collective::BucketSpec& spec) override;
  void begin(pass::Opening& opening) override;
  [[nodiscard]] bool is_void() const noexcept override { return session_.failure().has_value(); }
  [[nodiscard]] bool conclude(const pass::Verdict& verdict) override;
  void report() override { check(); }
  void changed(pass::Change what) noexcept override;

  /// The next bucket that is complete on this rank and has something to reduce; NULL if there is none. Collective if there
  /// is one.
  [[nodiscard]] std::shared_ptr<HookBucket> next();
  /// The bucket that next() gave. `problem`: on this rank. Collective; throws why the pass is void.
  void finish(const std::optional<Error>& problem);

 private:
  [[nodiscard]] HookOperation* open_operation() const noexcept;
  /// Throws why the pass is void on all ranks, if a hook made it so.
  void check() const;

  HookSession session_;
  const Plan& plan_;
  const Parameters& table_;
  std::vector<HookOperation*> operations_;
};

}  // namespace ddp::parts
