// SPDX-License-Identifier: Apache-2.0
#include "collective/socket/module.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "core/attempt.hpp"
#include "core/error.hpp"
#include "os/dispositions.hpp"
#include "os/module_files.hpp"

namespace ddp::socket {
namespace {

struct Description {
  const char* file;
  const char* module;
  const char* needed_for;
  const char* advice;
};

constexpr Description kGloo{"libddp_gloo.so", "the Gloo module", "training between hosts",
                            "install Gloo (Debian: libgloo0) or the module that was built for this system"};
constexpr Description kUcx{"libddp_ucx.so", "the UCX module", "the backend UCX",
                           "install UCX (Debian: libucx0) or the module that was built for this system"};

constexpr const char* kRdmaDevices = "/sys/class/infiniband";

const Description& about(Carrier carrier) noexcept { return carrier == Carrier::kUcx ? kUcx : kGloo; }

}  // namespace

const ddp_socket_table& open_socket_module(Carrier carrier, const std::vector<std::string>& candidates) {
  const Description& wanted = about(carrier);
  const os::KeepDispositions kept;  // UCX brings handlers of its own
  const os::OpenedModule module = os::open_module(wanted.module, candidates, wanted.advice);
  if (module.handle != nullptr) {
    const auto query = reinterpret_cast<ddp_socket_query_fn>(dlsym(module.handle, DDP_SOCKET_QUERY_NAME));
    const ddp_socket_table* table = query != nullptr ? query(DDP_SOCKET_VERSION) : nullptr;
    if (table == nullptr)
      throw make_error(DDP_ERROR_NOT_SUPPORTED,
                       "%s %s belongs to another version of libddp; install both from the same release", wanted.module,
                       module.file.c_str());
    return *table;
  }
  throw make_error(DDP_ERROR_NOT_SUPPORTED,
                   "%s needs %s, which is not installed (searched: %s); install it, or set DDP_MODULE_PATH to its folder",
                   wanted.needed_for, wanted.module, os::listed(candidates).c_str());
}

const ddp_socket_table& load_module(Carrier carrier) {
  return open_socket_module(carrier, os::module_candidates(about(carrier).file));
}

bool ucx_finds_rdma() noexcept {
  std::error_code unknown;
  const std::filesystem::directory_iterator devices(kRdmaDevices, unknown);
  if (unknown || devices == std::filesystem::directory_iterator()) return false;
  bool found = false;
  static_cast<void>(try_to([&] { found = load_module(Carrier::kUcx).finds_rdma() != 0; }));
  return found;
}

}  // namespace ddp::socket
