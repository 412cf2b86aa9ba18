// SPDX-License-Identifier: Apache-2.0
// The passes of a model with all that takes part in them. The order of the parts is here: numbers and events first, because
// they note when a bucket starts; then the batch, which says how this rank counts; then a hook; last the optimizer, whose
// begin may fail and whose step comes after what the others conclude.
// Threads: as Pass.
// Tested by conformance/.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "ddp/model.h"
#include "group/channels.hpp"
#include "parts/batch/batch.hpp"
#include "parts/events/meter.hpp"
#include "parts/events/pass_events.hpp"
#include "parts/hooks/hook.hpp"
#include "parts/hooks/hooked_buckets.hpp"
#include "parts/step/attached_optimizers.hpp"
#include "pass/pass.hpp"

namespace ddp::parts {

/// What the passes of a model stand on; it outlives them.
struct ModelParts {
  /// Collective. Gradients in `table`, which outlives this, have their addresses.
  ModelParts(group::Group& group, const Parameters& table, const ddp_model_options& options, Plan planned,
             uint64_t plan_hash, const Hook& hook);
  [[nodiscard]] std::vector<pass::PassPart*> in_order();

  const group::Channel channel;
  const Plan plan;
  const pass::BucketRules rules;
  Meter meter;
  PassEvents events;
  Batch batch;
  std::unique_ptr<HookedBuckets> hooked;  // NULL: there is no hook that works on copies
  AttachedOptimizers optimizers;
};

class ModelPass : private ModelParts, public pass::Pass {
 public:
  /// As ModelParts. `options` outlives it.
  ModelPass(group::Group& group, const Parameters& table, const ddp_model_options& options, Plan planned, uint64_t plan_hash,
            const Hook& hook);

  /// For the passes that reduce; refused once the first bucket of such a pass has started.
  void set_weight(double weight);
  void set_last();
  /// Tell the other ranks what comes and learn what they do (uneven_inputs). `joined`: this rank only answers. Collective,
  /// waits.
  const JoinHeader& call_roll(Call call, int32_t argument, bool joined);
  [[nodiscard]] Attendance& attendance() noexcept { return batch.attendance(); }
  /// Of the global batch, on this rank.
  [[nodiscard]] BatchParts& parts() noexcept { return batch.parts(); }

  /// For a model whose buckets are pulled (parts/hooks/hooked_buckets.hpp). `rest`: no more marks come on this rank.
  [[nodiscard]] std::shared_ptr<HookBucket> next_bucket(bool rest);
  void finish_bucket(const std::optional<Error>& problem);

  /// An optimizer takes part in the passes that follow, as long as it lives. `name`: in errors. Throws INVALID_STATE if a
  /// bucket has parameters of it and others.
  void attach(const std::shared_ptr<BlockUpdate>& update, const std::string& name);
  [[nodiscard]] const AttachedOptimizers& optimizers() const noexcept { return ModelParts::optimizers; }

  [[nodiscard]] Meter& meter() noexcept { return ModelParts::meter; }
};

}  // namespace ddp::parts
