// SPDX-License-Identifier: Apache-2.0
// Is the Gloo module there?
#pragma once

#include <cstdio>
#include <cstdlib>

#include "socket/module.hpp"

namespace ddp::test {

/// Prints why and returns true if there is no module.
inline bool no_gloo() {
  try {
    static_cast<void>(socket::load_module());
  } catch (const Error& error) {
    std::printf("skipped: %s\n", error.what());
    return true;
  }
  return false;
}

/// Ends the program as skipped without it.
inline void need_gloo() {
  if (no_gloo()) std::exit(77);
}

}  // namespace ddp::test
