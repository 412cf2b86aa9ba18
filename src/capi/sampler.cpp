// SPDX-License-Identifier: Apache-2.0
// ddp/sampler.h.
#include "ddp/sampler.h"

#include "capi/guard.hpp"
#include "capi/options.hpp"
#include "device/gpu/host_memory.hpp"
#include "extra/sampler.hpp"

using namespace ddp::capi;

namespace {

constexpr ddp_sampler sampler_defaults() noexcept {
  ddp_sampler defaults{};
  defaults.size = 1;
  defaults.shuffle = 1;
  return defaults;
}

ddp_sampler checked_sampler(const ddp_sampler* sampler, const char* function) {
  require(sampler, function, "sampler");
  const ddp_sampler checked = read_options(sampler, sampler_defaults(), function);
  ddp::extra::check_sampler(checked, function);
  return checked;
}

void check_range(const ddp_sampler& sampler, int64_t epoch, int64_t first, int64_t count) {
  if (epoch < 0)
    throw ddp::make_error(DDP_ERROR_INVALID_ARGUMENT, "ddp_sampler_fill: epoch is %lld; it must be 0 or more",
                          static_cast<long long>(epoch));
  const int64_t share = ddp::extra::sampler_count(sampler);
  if (first < 0 || count < 0 || first > share || count > share - first)
    throw ddp::make_error(
        DDP_ERROR_INVALID_ARGUMENT,
        "ddp_sampler_fill: %lld indices from position %lld were asked for, but a rank has %lld in an epoch",
        static_cast<long long>(count), static_cast<long long>(first), static_cast<long long>(share));
}

}  // namespace

ddp_status ddp_sampler_init(ddp_sampler* sampler, int64_t struct_size) {
  return guarded([&] {
    require(sampler, "ddp_sampler_init", "sampler");
    init_options(sampler, struct_size, sampler_defaults(), "ddp_sampler_init");
  });
}

ddp_status ddp_sampler_get_count(const ddp_sampler* sampler, int64_t* out_count) {
  return guarded([&] {
    const ddp_sampler checked = checked_sampler(sampler, "ddp_sampler_get_count");
    require(out_count, "ddp_sampler_get_count", "out_count");
    *out_count = ddp::extra::sampler_count(checked);
  });
}

ddp_status ddp_sampler_fill(const ddp_sampler* sampler, int64_t epoch, int64_t first, int64_t count, int64_t* out_indices) {
  return guarded([&] {
    const ddp_sampler checked = checked_sampler(sampler, "ddp_sampler_fill");
    check_range(checked, epoch, first, count);
    if (count > 0) require(out_indices, "ddp_sampler_fill", "out_indices");
    ddp::gpu::require_host(ddp::flat_tensor(out_indices, DDP_I64, count), "ddp_sampler_fill: out_indices",
                           ddp::gpu::kCopyIt);
    ddp::extra::sampler_fill(checked, epoch, first, count, out_indices);
  });
}
