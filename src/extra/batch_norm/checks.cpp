// SPDX-License-Identifier: Apache-2.0
#include "extra/batch_norm/checks.hpp"

#include <cmath>
#include <iterator>
#include <string>

#include "extra/batch_norm/moments.hpp"

namespace ddp::batch_norm {
namespace {

constexpr const char* kForward = "ddp_batch_norm_forward";
constexpr const char* kBackward = "ddp_batch_norm_backward";

[[noreturn]] void refuse(const char* function, const std::string& text) {
  throw Error(DDP_ERROR_INVALID_ARGUMENT, std::string(function) + ": " + text);
}

void check_data(const char* function, const char* name, const Tensor& tensor) {
  if (tensor.ndim < 2)
    refuse(function, std::string(name) + " is " + describe(tensor) + "; it has two dimensions or more: samples, channels");
  if (!is_floating(tensor.dtype))
    refuse(function, std::string(name) + " is " + describe(tensor) + "; it is F32, F64, F16 or BF16");
}

void check_like(const char* function, const char* name, const Tensor& tensor, const Tensor& x) {
  if (tensor.dtype != x.dtype || !tensor.same_shape(x))
    refuse(function, std::string(name) + " is " + describe(tensor) + ", but x is " + describe(x) + "; they must be alike");
}

void check_channels(const char* function, const char* name, const MaybeTensor& tensor, const Tensor& x) {
  if (tensor && (tensor->count != x.shape[1] || !is_floating(tensor->dtype)))
    refuse(function, std::string(name) + " is " + describe(*tensor) + "; for x, which is " + describe(x) + ", it has " +
                         std::to_string(x.shape[1]) + " elements of F32, F64, F16 or BF16");
}

void check_saved(const char* function, const char* name, const MaybeTensor& tensor, const Tensor& x) {
  check_channels(function, name, tensor, x);
  if (tensor && tensor->dtype != DDP_F64) refuse(function, std::string(name) + " is " + describe(*tensor) + "; it is F64");
}

/// All are in the memory of x: host memory, or its GPU (a group has one).
void check_place(const char* function, const char* name, const MaybeTensor& tensor, const Tensor& x) {
  if (tensor && tensor->is_on_gpu() != x.is_on_gpu())
    refuse(function,
           std::string(name) +
               (x.is_on_gpu() ? " is in host memory, but x is on a GPU" : " is on a GPU, but x is in host memory") +
               "; all tensors of a call lie in the same place");
}

bool overlap(const Tensor& a, const Tensor& b) noexcept {
  return a.count > 0 && b.count > 0 && a.data < b.data + b.bytes() && b.data < a.data + a.bytes();
}

/// What is written overlaps nothing else; `same` may be the very same memory.
void check_apart(const char* function, const char* name, const MaybeTensor& written, const char* other_name,
                 const MaybeTensor& other, bool same = false) {
  if (!written || !other || !overlap(*written, *other) || (same && written->data == other->data)) return;
  refuse(function, std::string("the memory of ") + name + " overlaps that of " + other_name);
}

}  // namespace

void check_options(const ddp_batch_norm_options& options, const char* function) {
  if (!(options.epsilon >= 0) || !std::isfinite(options.epsilon))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: epsilon is %g; it is finite and 0 or more", function, options.epsilon);
  if (!(options.momentum >= 0 && options.momentum <= 1))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: momentum is %g; it is 0 to 1", function, options.momentum);
  if ((options.training & ~1) != 0 || (options.accumulate & ~1) != 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: training is %d and accumulate %d; each is 0 or 1", function,
                     options.training, options.accumulate);
}

void check_forward(const Forward& call, bool training) {
  check_data(kForward, "x", call.x);
  check_like(kForward, "y", call.y, call.x);
  check_channels(kForward, "weight", call.weight, call.x);
  check_channels(kForward, "bias", call.bias, call.x);
  check_channels(kForward, "running_mean", call.running_mean, call.x);
  check_channels(kForward, "running_var", call.running_var, call.x);
  check_saved(kForward, "saved_mean", call.saved_mean, call.x);
  check_saved(kForward, "saved_invstd", call.saved_invstd, call.x);
  if (call.running_mean.has_value() != call.running_var.has_value())
    refuse(kForward, "one of running_mean and running_var is NULL; pass both or neither");
  if (!training && !call.running_mean)
    refuse(kForward, "running_mean and running_var are NULL; without training they are what is used");
  struct Named {
    const char* name;
    const MaybeTensor& tensor;
  };
  const MaybeTensor x = call.x, y = call.y;
  const Named all[] = {{"x", x},
                       {"weight", call.weight},
                       {"bias", call.bias},
                       {"running_mean", call.running_mean},
                       {"running_var", call.running_var},
                       {"y", y},
                       {"saved_mean", call.saved_mean},
                       {"saved_invstd", call.saved_invstd}};
  for (const Named& each : all) check_place(kForward, each.name, each.tensor, call.x);
  for (size_t i = 3; i < std::size(all); ++i)  // what is written
    for (size_t j = 0; j < i; ++j)
      check_apart(kForward, all[i].name, all[i].tensor, all[j].name, all[j].tensor, i == 5 && j == 0);
}

void check_backward(const Backward& call, bool training) {
  check_data(kBackward, "x", call.x);
  check_like(kBackward, "dy", call.dy, call.x);
  if (call.dx) check_like(kBackward, "dx", *call.dx, call.x);
  check_channels(kBackward, "weight", call.weight, call.x);
  check_saved(kBackward, "saved_mean", call.saved_mean, call.x);
  check_saved(kBackward, "saved_invstd", call.saved_invstd, call.x);
  check_channels(kBackward, "dweight", call.dweight, call.x);
  check_channels(kBackward, "dbias", call.dbias, call.x);
  const int64_t here = shape_of(call.x).per_channel();
  if (training && call.count < here)
    refuse(kBackward, "count is " + std::to_string(call.count) + ", but this rank alone has " + std::to_string(here) +
                          " values per channel; pass what forward gave as out_count");
  check_place(kBackward, "dy", call.dy, call.x);
  check_place(kBackward, "weight", call.weight, call.x);
  check_place(kBackward, "saved_mean", call.saved_mean, call.x);
  check_place(kBackward, "saved_invstd", call.saved_invstd, call.x);
  check_place(kBackward, "dx", call.dx, call.x);
  check_place(kBackward, "dweight", call.dweight, call.x);
  check_place(kBackward, "dbias", call.dbias, call.x);
  check_apart(kBackward, "dx", call.dx, "dy", call.dy, true);
  check_apart(kBackward, "dx", call.dx, "x", call.x);
  check_apart(kBackward, "dweight", call.dweight, "dbias", call.dbias);
  check_apart(kBackward, "dweight", call.dweight, "dx", call.dx);
  check_apart(kBackward, "dbias", call.dbias, "dx", call.dx);
}

void check_same_options(const group::Group& group, size_t rank, const double* there, const double* here) {
  if (there[0] == here[0] && there[1] == here[1]) return;
  throw make_error(DDP_ERROR_MISMATCH,
                   "ddp_batch_norm_forward: rank 0 normalises with epsilon %g and momentum %g, %s with epsilon %g and "
                   "momentum %g; all ranks "
                   "must pass the same options",
                   here[0], here[1], group.name_of(static_cast<int32_t>(rank)).c_str(), there[0], there[1])
      .with({.ranks = {static_cast<int32_t>(rank)}});
}

void check_total(double count) {
  if (count == 1)
    refuse(kForward,
           "all ranks together have a single value per channel, which has no variance; training needs two or more");
}

}  // namespace ddp::batch_norm
