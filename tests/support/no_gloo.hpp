// SPDX-License-Identifier: Apache-2.0
// The module to test with (carrier.hpp), if it is there.
#pragma once

#include <cstdio>

#include "collective/socket/module.hpp"
#include "support/carrier.hpp"

namespace ddp::test {

inline const ddp_socket_table& tested_module() {
  return socket::load_module(is_over_ucx() ? socket::Carrier::kUcx : socket::Carrier::kGloo);
}

/// Prints why and returns true if there is none.
inline bool no_gloo() {
  try {
    static_cast<void>(tested_module());
  } catch (const Error& error) {
    std::printf("skipped: %s\n", error.what());
    return true;
  }
  return false;
}

}  // namespace ddp::test
