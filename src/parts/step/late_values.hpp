// SPDX-License-Identifier: Apache-2.0
// The values of a sharded optimizer that come after its step (option late_values): the step changes the own slices and
// posts the gathers, one for each bucket, in the reverse order of the plan, which is about the order in which a forward uses
// the parameters. A parameter is there when the gathers of all its buckets have ended.
//
// Between a step and the wait for a value the program neither reads nor writes it. With DDP_GUARD_VALUES=1 it cannot:
// gathers then go to other memory, pages of values have no access, and the wait copies (guarded_values.hpp).
// Threads: one at a time.
// Tested by conformance/late_values_test.cpp and capi/late_values_test.c.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/request.hpp"
#include "parts/step/block_update.hpp"
#include "parts/step/guarded_values.hpp"

namespace ddp::parts {

class LateValues {
 public:
  /// `plan`: the buckets of the optimizer. All live longer.
  LateValues(const group::Channel& channel, const Parameters& table, const Plan& plan);
  /// Waits for the gathers.
  ~LateValues();
  LateValues(const LateValues&) = delete;
  LateValues& operator=(const LateValues&) = delete;

  /// `gather`: what the ordinary path would prepare. Collective, once for each bucket.
  void prepare(size_t bucket, collective::ExchangeSpec gather);

  /// The own slices of the parameters that take part have changed, and are given. All gathers before have ended.
  void post(const BlockUpdate& update);

  /// Until this parameter has its value; all of them. Throws why one has not come.
  void wait(int32_t index);
  void wait_all();
  /// Has it come? Never waits. Throws why it will not come.
  [[nodiscard]] bool is_ready(int32_t index);
  /// Until no thread touches values any more. False: some have not come.
  [[nodiscard]] bool settle() noexcept;

 private:
  struct Gather {
    std::unique_ptr<collective::BucketOperation> operation;
    collective::BucketHeader header;
    group::RequestPtr request;  // NULL: none is under way
  };
  void run(Gather& gather);
  void wait_for(size_t bucket);
  void require_copies() const;

  const group::Channel& channel_;
  const Plan& plan_;
  std::vector<Gather> gathers_;               // by bucket
  std::vector<std::vector<size_t>> buckets_;  // with pieces of it, by parameter
  std::unique_ptr<GuardedValues> guard_;      // NULL: values go where they belong
  group::RequestPtr failed_;                  // of the last step; NULL: none has
};

}  // namespace ddp::parts
