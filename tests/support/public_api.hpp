// SPDX-License-Identifier: Apache-2.0
// The public API for tests in C++: a call that fails throws its text.
#pragma once

#include <stdexcept>
#include <string>

#include "ddp/experimental.h"
#include "support/defaults.hpp"

namespace ddp::test {

inline void must_succeed(ddp_status status, const char* call) {
  if (status != DDP_OK) throw std::runtime_error(std::string(call) + ": " + ddp_last_error());
}
#define OK(call) ::ddp::test::must_succeed(call, #call)

inline ddp_group_options patient_options(int rank, int size) {
  auto options = defaults<ddp_group_options>();
  options.rank = rank;
  options.world_size = size;
  options.heartbeat_ms = 100;
  options.timeout_ms = options.rendezvous_timeout_ms = 20'000;
  return options;
}

inline ddp_group* create_group(const std::string& place, const ddp_group_options& options) {
  ddp_group* group = nullptr;
  OK(ddp_group_create(place.c_str(), &options, &group));
  return group;
}

}  // namespace ddp::test
