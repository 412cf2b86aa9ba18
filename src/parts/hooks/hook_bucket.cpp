// SPDX-License-Identifier: Apache-2.0
#include "parts/hooks/hook_bucket.hpp"

#include <algorithm>

#include "group/collective_call.hpp"

namespace ddp::parts {

using Step = HookSession::Step;

void HookBucket::require_open(const char* function) const {
  if (!open_)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: bucket %d is not in a hook now; it is usable until its hook returns, or until "
                     "ddp_model_finish_bucket",
                     function, index_);
}

void HookBucket::open(const collective::BucketHeader& joined) noexcept {
  std::copy(joined.used.begin(), joined.used.end(), used_.begin());
  open_ = true;
}

Tensor HookBucket::contents() const { return flat_tensor(session_.contents(), dtype_, count_); }

Step HookBucket::step_of(Step::Kind kind, const Tensor& tensor) const noexcept {
  Step step;
  step.kind = kind;
  step.bucket = index_;
  step.dtype = tensor.dtype;
  step.count = tensor.count;
  return step;
}

void HookBucket::agree_on(const Step& step) {
  session_.check_unbroken();
  if (session_.failure() || !session_.step(step)) throw Error(*session_.failure());
}

void HookBucket::all_reduce(const Tensor& tensor, ddp_reduce op) {
  const bootstrap::CallState::In inside(session_.calls(), bootstrap::UserCall::kBucketAllReduce);
  group::check_operation(session_.group(), "ddp_group_all_reduce", tensor, op);
  Step step = step_of(Step::Kind::kAllReduce, tensor);
  step.op = op;
  agree_on(step);
  session_.run_collective([&] { session_.transport().all_reduce(real_view(tensor), op); });
}

void HookBucket::all_gather(const Tensor& input, const Tensor& output) {
  const bootstrap::CallState::In inside(session_.calls(), bootstrap::UserCall::kBucketAllGather);
  if (input.dtype != output.dtype || output.count != input.count * size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_group_all_gather: output is %s; for the input %s on %d ranks it must have %lld elements",
                     describe(output).c_str(), describe(input).c_str(), size(),
                     static_cast<long long>(input.count) * size());
  agree_on(step_of(Step::Kind::kAllGather, input));
  session_.run_collective([&] { session_.transport().all_gather(real_view(input), real_view(output)); });
}

void HookBucket::reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op) {
  const bootstrap::CallState::In inside(session_.calls(), bootstrap::UserCall::kBucketReduceScatter);
  if (input.dtype != output.dtype || input.count != output.count * size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_group_reduce_scatter: input is %s; for the output %s on %d ranks it must have %lld elements",
                     describe(input).c_str(), describe(output).c_str(), size(),
                     static_cast<long long>(output.count) * size());
  group::check_operation(session_.group(), "ddp_group_reduce_scatter", input, op);
  Step step = step_of(Step::Kind::kReduceScatter, output);
  step.op = op;
  agree_on(step);
  session_.run_collective([&] { session_.transport().reduce_scatter(real_view(input), real_view(output), op); });
}

void HookBucket::broadcast(const Tensor& tensor, int32_t root) {
  const bootstrap::CallState::In inside(session_.calls(), bootstrap::UserCall::kBucketBroadcast);
  if (root < 0 || root >= size())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_group_broadcast: root is %d; the group has the ranks 0 to %d", root,
                     size() - 1);
  Step step = step_of(Step::Kind::kBroadcast, tensor);
  step.root = root;
  agree_on(step);
  session_.run_collective([&] { session_.transport().broadcast(real_view(tensor), root); });
}

}  // namespace ddp::parts
