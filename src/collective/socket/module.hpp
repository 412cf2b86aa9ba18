// SPDX-License-Identifier: Apache-2.0
// Finding and opening the modules that carry bytes: libddp_gloo.so and libddp_ucx.so. The core depends on neither: Debian's
// libgloo drags in hiredis, ibverbs and in newer releases MPI, so a program that trains on one host loads none of it.
//
// The first file of that name (os/module_files.hpp) is taken, opened with RTLD_NOW | RTLD_LOCAL and never closed.
// Tested by unit/collective/socket_test.cpp, process/gloo_test.cpp and process/ucx_test.cpp.
#pragma once

#include <string>
#include <vector>

#include "collective/socket/socket_abi.h"

namespace ddp::socket {

/// What carries the bytes between processes that share no memory.
enum class Carrier { kGloo, kUcx };

/// Throws NOT_SUPPORTED: there is none, the carrier's library is missing, or it belongs to another version of libddp.
[[nodiscard]] const ddp_socket_table& open_socket_module(Carrier carrier, const std::vector<std::string>& candidates);

/// The module of this carrier, found as above.
[[nodiscard]] const ddp_socket_table& load_module(Carrier carrier);

/// Does the module of UCX find a device for RDMA? False where the module or the system has none; then UCX is not loaded.
[[nodiscard]] bool ucx_finds_rdma() noexcept;

}  // namespace ddp::socket
