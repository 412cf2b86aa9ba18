// SPDX-License-Identifier: Apache-2.0
// The buckets of a model whose hook works on copies: makes their operations, and hands them out where the program pulls
// them.
// Threads: as HookOperation.
// Tested by conformance/hook_threads_test.cpp and capi/hook_test.c.
#pragma once

#include <memory>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "pass/hook_operation.hpp"

namespace ddp::pass {

class HookedBuckets {
 public:
  /// Collective.
  HookedBuckets(const group::Channel& channel, const Hook& hook, ddp_reduce reduce, const Plan& plan);

  [[nodiscard]] std::unique_ptr<collective::BucketOperation> make(const collective::BucketSpec& spec,
                                                                  const PlannedBucket& planned, const Parameters& table,
                                                                  bool last);

  void begin_pass() noexcept;
  /// A REDUCE pass has ended, for all buckets.
  void end_pass(bool is_void) noexcept;
  /// The parameters are others now: what the hook remembers of passes begins anew.
  void forget() noexcept;
  /// Throws why the pass is void on all ranks, if a hook made it so.
  void check() const;
  [[nodiscard]] bool has_failed() const noexcept { return session_.failure().has_value(); }

  /// The next bucket that is complete on this rank and has something to reduce; or NULL. Collective if it returns a bucket.
  [[nodiscard]] std::shared_ptr<HookBucket> next();
  /// The bucket that next() gave. `problem`: on this rank. Collective; throws why the pass is void.
  void finish(const std::optional<Error>& problem);

 private:
  [[nodiscard]] HookOperation* opened() const noexcept;

  HookSession session_;
  std::vector<HookOperation*> operations_;
};

}  // namespace ddp::pass
