// SPDX-License-Identifier: Apache-2.0
// What makes a rank of survivor.hpp unfit for its training.
#pragma once

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>

#include "ddp/experimental.h"

namespace ddp::test {

inline ddp_status add_one_parameter_more(ddp_model* model) {
  static std::array<float, 7> values, gradients;
  const int64_t count = values.size();
  ddp_tensor value, gradient;
  ddp_status status = ddp_tensor_init(&value, values.data(), DDP_F32, 1, &count);
  if (status == DDP_OK) status = ddp_tensor_init(&gradient, gradients.data(), DDP_F32, 1, &count);
  return status == DDP_OK ? ddp_model_add_parameter(model, "extra", &value, &gradient, nullptr) : status;
}

/// A port that another socket of this process has; it stays open.
inline int32_t taken_port() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  const int file = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (bind(file, where, length) != 0 || listen(file, 8) != 0 || getsockname(file, where, &length) != 0) return 1;
  return ntohs(address.sin_port);
}

inline void set_limit(decltype(RLIMIT_NOFILE) which, rlim_t most) {
  const rlimit now = {most, most};
  (void)setrlimit(which, &now);
}

}  // namespace ddp::test
