// ddp/batch_norm.h.
#include "ddp/batch_norm.h"

#include <string>

#include "capi/options.hpp"
#include "capi/tables.hpp"
#include "norm/batch_norm.hpp"

using namespace ddp;
using namespace ddp::capi;

namespace {

ddp_batch_norm_options default_options() noexcept {
  ddp_batch_norm_options options{};
  options.epsilon = 1e-5;
  options.momentum = 0.1;
  options.training = 1;
  return options;
}

Tensor needed(const ddp_tensor* tensor, const char* function, const char* name) {
  return checked_tensor(tensor, std::string(function) + ": " + name);
}

norm::MaybeTensor optional(const ddp_tensor* tensor, const char* function, const char* name) {
  if (tensor == nullptr) return std::nullopt;
  return needed(tensor, function, name);
}

}  // namespace

ddp_status ddp_batch_norm_options_init(ddp_batch_norm_options* options, int64_t struct_size) {
  return guarded([&] { init_options(options, struct_size, default_options(), "ddp_batch_norm_options_init"); });
}

ddp_status ddp_batch_norm_forward(ddp_group* group, const ddp_batch_norm_options* options, const ddp_tensor* x, const ddp_tensor* weight,
                                  const ddp_tensor* bias, const ddp_tensor* running_mean, const ddp_tensor* running_var,
                                  const ddp_tensor* y, const ddp_tensor* saved_mean, const ddp_tensor* saved_invstd, int64_t* out_count,
                                  void*) {
  constexpr const char* kName = "ddp_batch_norm_forward";
  return guarded([&] {
    const auto object = group_of(group, kName);
    const ddp_batch_norm_options read = read_options(options, default_options(), kName);
    norm::Forward call;
    call.x = needed(x, kName, "x");
    call.weight = optional(weight, kName, "weight");
    call.bias = optional(bias, kName, "bias");
    call.running_mean = optional(running_mean, kName, "running_mean");
    call.running_var = optional(running_var, kName, "running_var");
    call.y = needed(y, kName, "y");
    call.saved_mean = optional(saved_mean, kName, "saved_mean");
    call.saved_invstd = optional(saved_invstd, kName, "saved_invstd");
    const int64_t count = norm::forward(*object, read, call);
    if (out_count != nullptr) *out_count = count;
  });
}

ddp_status ddp_batch_norm_backward(ddp_group* group, const ddp_batch_norm_options* options, const ddp_tensor* dy, const ddp_tensor* x,
                                   const ddp_tensor* weight, const ddp_tensor* saved_mean, const ddp_tensor* saved_invstd, int64_t count,
                                   const ddp_tensor* dx, const ddp_tensor* dweight, const ddp_tensor* dbias, void*) {
  constexpr const char* kName = "ddp_batch_norm_backward";
  return guarded([&] {
    const auto object = group_of(group, kName);
    const ddp_batch_norm_options read = read_options(options, default_options(), kName);
    norm::Backward call;
    call.dy = needed(dy, kName, "dy");
    call.x = needed(x, kName, "x");
    call.weight = optional(weight, kName, "weight");
    call.saved_mean = needed(saved_mean, kName, "saved_mean");
    call.saved_invstd = needed(saved_invstd, kName, "saved_invstd");
    call.count = count;
    call.dx = optional(dx, kName, "dx");
    call.dweight = optional(dweight, kName, "dweight");
    call.dbias = optional(dbias, kName, "dbias");
    norm::backward(*object, read, call);
  });
}
