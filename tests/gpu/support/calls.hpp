// SPDX-License-Identifier: Apache-2.0
// Calls of the public API in tests that throw: what must succeed, and what must fail with a sentence.
#pragma once

#include <ddp/experimental.h>

#include "gpu/support/run_tests.hpp"
#include "support/defaults.hpp"

namespace ddp::test::card {

inline void must_succeed(ddp_status status, const char* call) {
  if (status != DDP_OK)
    throw std::runtime_error(std::string(call) + ": " + ddp_status_name(status) + ": " + ddp_last_error());
}
#define OK(call) ddp::test::card::must_succeed((call), #call)

/// The call fails with this status, and its text contains `part`.
inline void must_fail(ddp_status status, ddp_status wanted, const char* part, const char* call) {
  const std::string text = status == DDP_OK ? "success" : std::string(ddp_status_name(status)) + ": " + ddp_last_error();
  if (status != wanted)
    throw std::runtime_error(std::string(call) + " gave " + text + ", expected " + ddp_status_name(wanted));
  if (text.find(part) == std::string::npos)
    throw std::runtime_error(std::string(call) + " gave \"" + text + "\" without \"" + part + "\"");
}
#define FAILS(wanted, call, part) ddp::test::card::must_fail((call), wanted, part, #call)

struct Destroy {
  void operator()(ddp_group* it) const { ddp_group_destroy(it); }
  void operator()(ddp_model* it) const { ddp_model_destroy(it); }
  void operator()(ddp_optimizer* it) const { ddp_optimizer_destroy(it); }
  void operator()(ddp_ema* it) const { ddp_ema_destroy(it); }
};
using GroupHandle = std::unique_ptr<ddp_group, Destroy>;
using ModelHandle = std::unique_ptr<ddp_model, Destroy>;
using OptimizerHandle = std::unique_ptr<ddp_optimizer, Destroy>;
using EmaHandle = std::unique_ptr<ddp_ema, Destroy>;

/// A group of one.
inline GroupHandle alone(ddp_backend backend = DDP_BACKEND_AUTO, int32_t device = 0) {
  auto options = defaults<ddp_group_options>();
  options.rank = 0;
  options.world_size = 1;
  options.backend = backend;
  options.device_index = device;
  ddp_group* group = nullptr;
  OK(ddp_group_create(nullptr, &options, &group));
  return GroupHandle(group);
}

}  // namespace ddp::test::card
