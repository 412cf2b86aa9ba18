// SPDX-License-Identifier: Apache-2.0
// ddp/batch_norm.h.
#include "ddp/batch_norm.h"

#include <string>

#include "capi/options.hpp"
#include "capi/tables.hpp"
#include "capi/tensors.hpp"
#include "extra/batch_norm/batch_norm.hpp"

using namespace ddp;
using namespace ddp::capi;

namespace {

ddp_batch_norm_options batch_norm_defaults() noexcept {
  ddp_batch_norm_options options{};
  options.epsilon = 1e-5;
  options.momentum = 0.1;
  options.training = 1;
  return options;
}

/// The tensors of a call, bound to the group's GPU if they are there.
struct Reader {
  group::Group& group;
  const char* function;
  [[nodiscard]] Tensor needed(const ddp_tensor* tensor, const char* name) const {
    return bound_tensor(group, tensor, (std::string(function) + ": " + name).c_str());
  }
  [[nodiscard]] batch_norm::MaybeTensor optional(const ddp_tensor* tensor, const char* name) const {
    if (tensor == nullptr) return std::nullopt;
    return needed(tensor, name);
  }
};

}  // namespace

ddp_status ddp_batch_norm_options_init(ddp_batch_norm_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, batch_norm_defaults(), "ddp_batch_norm_options_init"); });
}

ddp_status ddp_batch_norm_forward(ddp_group* group, const ddp_batch_norm_options* options, const ddp_tensor* x,
                                  const ddp_tensor* weight, const ddp_tensor* bias, const ddp_tensor* running_mean,
                                  const ddp_tensor* running_var, const ddp_tensor* y, const ddp_tensor* saved_mean,
                                  const ddp_tensor* saved_invstd, int64_t* out_count, void* stream) {
  constexpr const char* kName = "ddp_batch_norm_forward";
  return run_local(group, kName, [&](group::Group& object) {
    const ddp_batch_norm_options read = read_options(options, batch_norm_defaults(), kName);
    const int64_t count = group::or_break(object, group::call_if(read.training != 0), kName, [&] {
      const Reader of{object, kName};
      batch_norm::Forward call;
      call.x = of.needed(x, "x");
      call.weight = of.optional(weight, "weight");
      call.bias = of.optional(bias, "bias");
      call.running_mean = of.optional(running_mean, "running_mean");
      call.running_var = of.optional(running_var, "running_var");
      call.y = of.needed(y, "y");
      call.saved_mean = of.optional(saved_mean, "saved_mean");
      call.saved_invstd = of.optional(saved_invstd, "saved_invstd");
      return batch_norm::forward(object, read, call, stream);
    });
    if (out_count != nullptr) *out_count = count;
  });
}

ddp_status ddp_batch_norm_backward(ddp_group* group, const ddp_batch_norm_options* options, const ddp_tensor* dy,
                                   const ddp_tensor* x, const ddp_tensor* weight, const ddp_tensor* saved_mean,
                                   const ddp_tensor* saved_invstd, int64_t count, const ddp_tensor* dx,
                                   const ddp_tensor* dweight, const ddp_tensor* dbias, void* stream) {
  constexpr const char* kName = "ddp_batch_norm_backward";
  return run_local(group, kName, [&](group::Group& object) {
    const ddp_batch_norm_options read = read_options(options, batch_norm_defaults(), kName);
    group::or_break(object, group::call_if(read.training != 0), kName, [&] {
      const Reader of{object, kName};
      batch_norm::Backward call;
      call.dy = of.needed(dy, "dy");
      call.x = of.needed(x, "x");
      call.weight = of.optional(weight, "weight");
      call.saved_mean = of.needed(saved_mean, "saved_mean");
      call.saved_invstd = of.needed(saved_invstd, "saved_invstd");
      call.count = count;
      call.dx = of.optional(dx, "dx");
      call.dweight = of.optional(dweight, "dweight");
      call.dbias = of.optional(dbias, "dbias");
      batch_norm::backward(object, read, call, stream);
    });
  });
}
