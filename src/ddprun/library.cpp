// SPDX-License-Identifier: Apache-2.0
#include "ddprun/library.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <climits>

#include "core/error.hpp"

namespace ddp::ddprun {
namespace {

constexpr const char* kName = "libddp.so.0.1";

std::string own_folder() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string whole(path.data(), length > 0 ? static_cast<size_t>(length) : 0);
  return whole.substr(0, whole.rfind('/') + 1);
}

}  // namespace

Library open_library() {
  void* handle = nullptr;
  const std::string here = own_folder();
  // Where it is built, where it is installed, and as the loader finds it.
  for (const std::string& path : {here + "../src/" + kName, here + "../" DDP_LIBDIR "/" + kName, std::string(kName)})
    if (handle == nullptr) handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr)
    throw make_error(DDP_ERROR_IO,
                     "libddp was not found beside ddprun, nor by the loader (%s): install it, or set LD_LIBRARY_PATH",
                     dlerror());
  Library library;
#define DDP_CHECK_LOAD(name)                                                            \
  library.name = reinterpret_cast<decltype(library.name)>(dlsym(handle, "ddp_" #name)); \
  if (library.name == nullptr) throw make_error(DDP_ERROR_IO, "%s has no ddp_" #name ": it is of another version", kName);
  DDP_CHECK_FUNCTIONS(DDP_CHECK_LOAD)
#undef DDP_CHECK_LOAD
  return library;
}

}  // namespace ddp::ddprun
