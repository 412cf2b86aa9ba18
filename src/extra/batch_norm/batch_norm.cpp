// SPDX-License-Identifier: Apache-2.0
#include "extra/batch_norm/batch_norm.hpp"

#include <cmath>
#include <vector>

#include "control/call_state.hpp"
#include "core/virtual_ranks.hpp"
#include "device/cpu/arrays.hpp"
#include "extra/batch_norm/checks.hpp"
#include "extra/batch_norm/gpu.hpp"
#include "extra/batch_norm/moments.hpp"

namespace ddp::batch_norm {
namespace {

using Doubles = std::vector<double>;

constexpr size_t kHead = 3;  // before the channels in what is sent: epsilon, momentum, count

Doubles read(const MaybeTensor& tensor, int64_t channels, double otherwise) {
  Doubles values(static_cast<size_t>(channels), otherwise);
  if (tensor) cpu::convert(tensor->dtype, tensor->data, DDP_F64, values.data(), channels);
  return values;
}

void write(const MaybeTensor& tensor, const Doubles& values) {
  if (tensor) cpu::convert(DDP_F64, values.data(), tensor->dtype, tensor->data, tensor->count);
}

/// The moments of all ranks, joined in rank order. One message.
Moments join_ranks(group::Group& group, const ddp_batch_norm_options& options, const Moments& mine) {
  const size_t channels = mine.mean.size();
  const size_t length = kHead + 2 * channels;
  Doubles sent{options.epsilon, options.momentum, mine.count};
  sent.insert(sent.end(), mine.mean.begin(), mine.mean.end());
  sent.insert(sent.end(), mine.m2.begin(), mine.m2.end());
  Doubles all(length * static_cast<size_t>(group.size()));
  group.all_gather(flat_tensor(sent.data(), DDP_F64, static_cast<int64_t>(length)),
                   flat_tensor(all.data(), DDP_F64, static_cast<int64_t>(all.size())));
  Moments joined(static_cast<int64_t>(channels));
  for (size_t rank = 0; rank < static_cast<size_t>(group.size()); ++rank) {
    const double* const there = all.data() + rank * length;
    check_same_options(group, rank, there, all.data());
    join(joined, there[2], there + kHead, there + kHead + channels);
  }
  check_total(joined.count);
  return joined;
}

void update_running(const ddp_batch_norm_options& options, const Forward& call, const Moments& moments) {
  if (!call.running_mean) return;
  const int64_t channels = call.running_mean->count;
  Doubles mean = read(call.running_mean, channels, 0);
  Doubles var = read(call.running_var, channels, 0);
  const double share = options.momentum;
  for (size_t c = 0; c < mean.size(); ++c) {
    mean[c] = (1 - share) * mean[c] + share * moments.mean[c];
    var[c] = (1 - share) * var[c] + share * (moments.m2[c] / (moments.count - 1));
  }
  write(call.running_mean, mean);
  write(call.running_var, var);
}

void normalise(const Forward& call, const Doubles& mean, const Doubles& invstd) {
  const Shape shape = shape_of(call.x);
  Doubles factor = read(call.weight, shape.channels, 1);
  const Doubles shift = read(call.bias, shape.channels, 0);
  for (size_t c = 0; c < factor.size(); ++c) factor[c] *= invstd[c];
  apply_forward(call.x.dtype, call.x.data, shape, mean.data(), factor.data(), shift.data(), call.y.data);
  write(call.saved_mean, mean);
  write(call.saved_invstd, invstd);
}

void write_gradient(const MaybeTensor& tensor, bool accumulate, Doubles gradient) {
  if (!tensor) return;
  if (accumulate) {
    const Doubles before = read(tensor, tensor->count, 0);
    for (size_t c = 0; c < gradient.size(); ++c) gradient[c] += before[c];
  }
  write(tensor, gradient);
}

}  // namespace

int64_t forward(group::Group& group, const ddp_batch_norm_options& options, const Forward& call, void* stream) {
  check_options(options, "ddp_batch_norm_forward");
  check_forward(call, options.training == 1);
  if (options.training == 1) group.check_idle("ddp_batch_norm_forward");
  if (options.training == 1 && VirtualRanks::of(group.options(), group.rank(), group.size()).shared)
    throw Error(DDP_ERROR_NOT_SUPPORTED,
                "ddp_batch_norm_forward: some rank has several virtual ranks, which it works on one after the other, so "
                "statistics over all of them cannot be had in one call; use batch normalisation over a part alone");
  const bootstrap::CallState::In inside(options.training == 1 ? &group.calls() : nullptr,
                                        bootstrap::UserCall::kBatchNormForward);
  if (call.x.is_on_gpu()) return forward_on_gpu(group, options, call, stream);
  const Shape shape = shape_of(call.x);
  Moments moments(shape.channels);
  Doubles var;
  if (options.training == 1) {
    moments = join_ranks(group, options, measure(call.x.dtype, call.x.data, shape));
    if (moments.count == 0) return 0;
    update_running(options, call, moments);
    var = moments.m2;
    for (double& each : var) each /= moments.count;
  } else {
    moments.count = static_cast<double>(shape.per_channel());
    moments.mean = read(call.running_mean, shape.channels, 0);
    var = read(call.running_var, shape.channels, 1);
  }
  for (double& each : var) each = 1 / std::sqrt(each + options.epsilon);
  normalise(call, moments.mean, var);
  return static_cast<int64_t>(moments.count);
}

void backward(group::Group& group, const ddp_batch_norm_options& options, const Backward& call, void* stream) {
  check_options(options, "ddp_batch_norm_backward");
  check_backward(call, options.training == 1);
  if (options.training == 1) group.check_idle("ddp_batch_norm_backward");
  const bootstrap::CallState::In inside(options.training == 1 ? &group.calls() : nullptr,
                                        bootstrap::UserCall::kBatchNormBackward);
  if (call.x.is_on_gpu()) return backward_on_gpu(group, options, call, stream);
  const Shape shape = shape_of(call.x);
  const auto channels = static_cast<size_t>(shape.channels);
  const Doubles mean = read(call.saved_mean, shape.channels, 0);
  const Doubles invstd = read(call.saved_invstd, shape.channels, 0);
  Doubles mine(2 * channels);  // sums of dy, then of dy * (x - mean)
  gradient_sums(call.x.dtype, call.dy.data, call.x.data, shape, mean.data(), mine.data(), mine.data() + channels);
  Doubles all = mine;
  if (options.training == 1) group.all_reduce(flat_tensor(all.data(), DDP_F64, static_cast<int64_t>(all.size())), DDP_SUM);
  if (call.dx) {
    const double share = options.training == 1 && call.count > 0 ? 1 / static_cast<double>(call.count) : 0;
    Doubles factor = read(call.weight, shape.channels, 1);
    Doubles slope(channels), shift(channels);
    for (size_t c = 0; c < channels; ++c) {
      factor[c] *= invstd[c];
      slope[c] = factor[c] * invstd[c] * invstd[c] * (all[channels + c] * share);
      shift[c] = factor[c] * (all[c] * share);
    }
    apply_backward(call.x.dtype, call.dy.data, call.x.data, shape, mean.data(), factor.data(), slope.data(), shift.data(),
                   call.dx->data);
  }
  Doubles dweight(channels);
  for (size_t c = 0; c < channels; ++c) dweight[c] = mine[channels + c] * invstd[c];
  write_gradient(call.dweight, options.accumulate == 1, std::move(dweight));
  mine.resize(channels);
  write_gradient(call.dbias, options.accumulate == 1, std::move(mine));
}

}  // namespace ddp::batch_norm
