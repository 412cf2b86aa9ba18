// SPDX-License-Identifier: Apache-2.0
// What carries the bytes in tests that are about sockets: Gloo, or UCX with DDP_TEST_CARRIER=ucx. The same programs then
// hold the same promises for it, and where their names say Gloo, it is UCX. UCX_TLS chooses its transports.
#pragma once

#include <cstdlib>
#include <cstring>

#include "ddp/types.h"

namespace ddp::test {

inline bool is_over_ucx() {
  const char* carrier = std::getenv("DDP_TEST_CARRIER");
  return carrier != nullptr && std::strcmp(carrier, "ucx") == 0;
}

/// In the place of GLOO: what is tested.
inline ddp_backend tested(ddp_backend backend) {
  return backend == DDP_BACKEND_GLOO && is_over_ucx() ? DDP_BACKEND_UCX : backend;
}

}  // namespace ddp::test
