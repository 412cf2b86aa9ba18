// SPDX-License-Identifier: Apache-2.0
#include "extra/batch_norm/gpu.hpp"

#include <vector>

#include "device/gpu/scratch.hpp"
#include "extra/batch_norm/checks.hpp"
#include "extra/batch_norm/moments.hpp"
#include "group/consensus.hpp"
#include "group/gpu.hpp"

namespace ddp::batch_norm {
namespace {

constexpr int64_t kDouble = static_cast<int64_t>(sizeof(double));
constexpr int64_t kAligned = 256;
constexpr const char* kWhyNoGraph = "its working memory is shared with other calls";

ddp_gpu_batch batch_of(const Tensor& x) noexcept {
  const Shape shape = shape_of(x);
  return {shape.rows, shape.channels, shape.inner, x.dtype, 0};
}

ddp_gpu_channels channels_of(const MaybeTensor& tensor) noexcept {
  return tensor ? ddp_gpu_channels{tensor->data, tensor->dtype, 0} : ddp_gpu_channels{nullptr, DDP_F32, 0};
}

/// Doubles on the GPU, as a tensor that can be sent.
Tensor numbers(const Tensor& like, double* data, int64_t count) noexcept {
  Tensor tensor = flat_tensor(data, DDP_F64, count);
  tensor.device_index = like.device_index;
  tensor.device = like.device;
  return tensor;
}

/// What this rank does by itself; if others wait for it, a failure ends the group.
template <class Body>
auto own_part(group::Group& group, bool trains, Body&& body) {
  return group::or_break(group, trains ? group::Part::kOwn : group::Part::kLocal, body);
}

/// Working memory: first doubles, then what the kernels want.
class Work {
 public:
  Work(group::Group& group, const gpu::Device& device, bool trains, const ddp_gpu_batch& batch, int64_t doubles,
       void* stream)
      : bytes_((doubles * kDouble + kAligned - 1) / kAligned * kAligned), use_(own_part(group, trains, [&] {
          return group.gpu().scratch().take(bytes_ + device.table().bn_scratch_bytes(&batch), stream);
        })) {}
  [[nodiscard]] double* at(int64_t index) const noexcept { return reinterpret_cast<double*>(use_.data()) + index; }
  [[nodiscard]] void* kernels() const noexcept { return use_.data() + bytes_; }
  void done() { use_.done(); }

 private:
  int64_t bytes_;  // of the doubles
  gpu::Scratch::Use use_;
};

/// Values per channel over all ranks. Collective, over the host.
double join_counts(group::Group& group, const ddp_batch_norm_options& options, const Shape& shape) {
  const double mine[] = {options.epsilon, options.momentum, static_cast<double>(shape.per_channel())};
  std::vector<double> all(std::size(mine) * static_cast<size_t>(group.size()));
  std::vector<double> sent(std::begin(mine), std::end(mine));
  group.all_gather(flat_tensor(sent.data(), DDP_F64, std::ssize(sent)), flat_tensor(all.data(), DDP_F64, std::ssize(all)));
  double count = 0;
  for (size_t rank = 0; rank < static_cast<size_t>(group.size()); ++rank) {
    const double* const there = all.data() + rank * std::size(mine);
    check_same_options(group, rank, there, all.data());
    count += there[2];
  }
  check_total(count);
  return count;
}

ddp_gpu_bn_join join_of(const ddp_batch_norm_options& options, const Forward& call, int64_t channels, double* coefficients) {
  ddp_gpu_bn_join join{};
  join.channels = channels;
  join.epsilon = options.epsilon;
  join.momentum = options.momentum;
  join.weight = channels_of(call.weight);
  join.bias = channels_of(call.bias);
  join.running_mean = channels_of(call.running_mean);
  join.running_var = channels_of(call.running_var);
  join.saved_mean = channels_of(call.saved_mean);
  join.saved_invstd = channels_of(call.saved_invstd);
  join.coefficients = coefficients;
  return join;
}

/// Factors from the joined moments, and y.
void normalise(const gpu::Device& device, const ddp_gpu_batch& batch, const Forward& call, const ddp_gpu_bn_join& join,
               ddp_gpu_stop stop, void* stream) {
  if (batch.channels == 0) return;
  const gpu::Device::Current current(device);
  device.check(device.table().bn_join(&join, stop, stream), "joining the moments of all ranks");
  if (call.x.count == 0) return;
  device.check(device.table().bn_apply(&batch, call.x.data, join.coefficients, call.y.data, stop, stream),
               "normalising a batch");
}

}  // namespace

int64_t forward_on_gpu(group::Group& group, const ddp_batch_norm_options& options, const Forward& call, void* stream) {
  const gpu::Device& device = gpu::of(call.x);
  device.refuse_capture(stream, "ddp_batch_norm_forward", kWhyNoGraph);
  const Shape shape = shape_of(call.x);
  const ddp_gpu_batch batch = batch_of(call.x);
  const bool trains = options.training == 1;
  const double count = trains ? join_counts(group, options, shape) : static_cast<double>(shape.per_channel());
  if (trains && count == 0) return 0;
  const int64_t block = 1 + 2 * shape.channels;
  const int64_t blocks = trains ? block * group.size() : 0;
  Work work(group, device, trains, batch, 3 * shape.channels + blocks, stream);
  ddp_gpu_bn_join join = join_of(options, call, shape.channels, work.at(0));
  if (trains) {
    double* const all = work.at(3 * shape.channels);
    double* const own = all + block * group.rank();
    if (shape.channels > 0)
      own_part(group, trains, [&] {
        const gpu::Device::Current current(device);
        device.check(device.table().bn_moments(&batch, call.x.data, own, work.kernels(), stream), "measuring a batch");
      });
    group.all_gather(numbers(call.x, own, block), numbers(call.x, all, blocks), stream);
    join.blocks = all;
    join.block_count = group.size();
  }
  normalise(device, batch, call, join, trains ? group.gpu().stop_on(stream) : nullptr, stream);
  work.done();
  return static_cast<int64_t>(count);
}

void backward_on_gpu(group::Group& group, const ddp_batch_norm_options& options, const Backward& call, void* stream) {
  const gpu::Device& device = gpu::of(call.x);
  device.refuse_capture(stream, "ddp_batch_norm_backward", kWhyNoGraph);
  const ddp_gpu_batch batch = batch_of(call.x);
  const int64_t channels = batch.channels;
  const bool trains = options.training == 1;
  Work work(group, device, trains, batch, 8 * channels, stream);
  double* const own = work.at(0);
  double* const all = trains && group.size() > 1 ? work.at(2 * channels) : own;
  const ddp_gpu_channels mean = channels_of(call.saved_mean);
  const gpu::Device::Current current(device);
  if (channels > 0)
    own_part(group, trains, [&] {
      device.check(device.table().bn_sums(&batch, call.dy.data, call.x.data, &mean, own, work.kernels(), stream),
                   "summing a gradient");
      if (all != own) device.copy(all, own, 2 * channels * kDouble, stream);
    });
  if (all != own) group.all_reduce(numbers(call.x, all, 2 * channels), DDP_SUM, stream);
  const ddp_gpu_stop stop = all != own ? group.gpu().stop_on(stream) : nullptr;
  ddp_gpu_bn_slopes slopes{};
  slopes.own = own;
  slopes.all = all;
  slopes.channels = channels;
  slopes.share = trains && call.count > 0 ? 1 / static_cast<double>(call.count) : 0;
  slopes.accumulate = options.accumulate;
  slopes.weight = channels_of(call.weight);
  slopes.saved_mean = mean;
  slopes.saved_invstd = channels_of(call.saved_invstd);
  slopes.dweight = channels_of(call.dweight);
  slopes.dbias = channels_of(call.dbias);
  slopes.coefficients = call.dx ? work.at(4 * channels) : nullptr;
  if (channels > 0)
    device.check(device.table().bn_slopes(&slopes, stop, stream), "forming the gradients of a batch normalisation");
  if (call.dx && call.x.count > 0)
    device.check(device.table().bn_apply_backward(&batch, call.dy.data, call.x.data, slopes.coefficients, call.dx->data,
                                                  stop, stream),
                 "forming the gradient of a batch");
  work.done();
}

}  // namespace ddp::batch_norm
