// SPDX-License-Identifier: Apache-2.0
#include "socket/module.hpp"

#include <dlfcn.h>

#include "core/error.hpp"
#include "os/module_files.hpp"

namespace ddp::socket {
namespace {

constexpr const char* kFile = "libddp_gloo.so";

}  // namespace

const ddp_socket_table& open_socket_module(const std::vector<std::string>& candidates) {
  const os::OpenedModule module =
      os::open_module("the Gloo module", candidates,
                      "install Gloo and OpenSSL (Debian: libgloo0, libssl3) or the module that was built for this system");
  if (module.handle != nullptr) {
    const auto query = reinterpret_cast<ddp_socket_query_fn>(dlsym(module.handle, DDP_SOCKET_QUERY_NAME));
    const ddp_socket_table* table = query != nullptr ? query(DDP_SOCKET_VERSION) : nullptr;
    if (table == nullptr)
      throw make_error(DDP_ERROR_NOT_SUPPORTED,
                       "the Gloo module %s belongs to another version of libddp; install both from the same release",
                       module.file.c_str());
    return *table;
  }
  throw make_error(DDP_ERROR_NOT_SUPPORTED,
                   "training between hosts needs the Gloo module, which is not installed (searched: %s); install it, or set "
                   "DDP_MODULE_PATH to its folder",
                   os::listed(candidates).c_str());
}

const ddp_socket_table& load_module() { return open_socket_module(os::module_candidates(kFile)); }

}  // namespace ddp::socket
