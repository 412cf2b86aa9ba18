// SPDX-License-Identifier: Apache-2.0
// Finding and opening the module that carries bytes, libddp_gloo.so. The core does not depend on it: Debian's libgloo drags
// in hiredis, ibverbs and in newer releases MPI, so a program that trains on one host loads none of it.
//
// The first file of that name (os/module_files.hpp) is taken, opened with RTLD_NOW | RTLD_LOCAL and never closed.
// Tested by unit/exchange/socket_test.cpp and process/gloo_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "socket/socket_abi.h"

namespace ddp::socket {

/// Throws NOT_SUPPORTED: the module or Gloo is missing, or it belongs to another version of libddp.
[[nodiscard]] const ddp_socket_table& open_socket_module(const std::vector<std::string>& candidates);

/// The module, found as above.
[[nodiscard]] const ddp_socket_table& load_module();

}  // namespace ddp::socket
