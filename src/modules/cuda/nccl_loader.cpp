// SPDX-License-Identifier: Apache-2.0
#include "modules/cuda/nccl_loader.hpp"

#include <dlfcn.h>

namespace ddp::cuda::nccl {
namespace {

constexpr const char* kFile = "libnccl.so.2";

std::string version_text(int version) {
  if (version < 10000)
    return std::to_string(version / 1000) + "." + std::to_string(version / 100 % 10) + "." + std::to_string(version % 100);
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

std::string loader_text() {
  const char* const text = dlerror();
  return text != nullptr ? text : "unknown error";
}

void* open_file(const char* path, std::string& error) {
  if (path != nullptr && path[0] != '\0') {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) error = "cannot be loaded: " + loader_text();
    return library;
  }
  if (void* const library = dlopen(kFile, RTLD_NOW | RTLD_NOLOAD); library != nullptr) return library;
  static_cast<void>(dlerror());
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    error = std::string(kFile) + " is neither in this process nor where the loader looks (" + loader_text() + ")";
  return library;
}

template <class Function>
bool find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

/// The name of a function that is needed and not there, or NULL.
const char* find_needed(void* library, Functions& f) {
  if (!find(library, "ncclGetVersion", f.GetVersion)) return "ncclGetVersion";
  if (!find(library, "ncclGetErrorString", f.GetErrorString)) return "ncclGetErrorString";
  if (!find(library, "ncclGetUniqueId", f.GetUniqueId)) return "ncclGetUniqueId";
  if (!find(library, "ncclCommInitRankConfig", f.CommInitRankConfig)) return "ncclCommInitRankConfig";
  if (!find(library, "ncclCommAbort", f.CommAbort)) return "ncclCommAbort";
  if (!find(library, "ncclCommFinalize", f.CommFinalize)) return "ncclCommFinalize";
  if (!find(library, "ncclCommDestroy", f.CommDestroy)) return "ncclCommDestroy";
  if (!find(library, "ncclCommGetAsyncError", f.CommGetAsyncError)) return "ncclCommGetAsyncError";
  if (!find(library, "ncclAllReduce", f.AllReduce)) return "ncclAllReduce";
  if (!find(library, "ncclReduceScatter", f.ReduceScatter)) return "ncclReduceScatter";
  if (!find(library, "ncclAllGather", f.AllGather)) return "ncclAllGather";
  if (!find(library, "ncclBroadcast", f.Broadcast)) return "ncclBroadcast";
  if (!find(library, "ncclGroupStart", f.GroupStart)) return "ncclGroupStart";
  if (!find(library, "ncclGroupEnd", f.GroupEnd)) return "ncclGroupEnd";
  if (!find(library, "ncclCommCount", f.CommCount)) return "ncclCommCount";
  if (!find(library, "ncclCommUserRank", f.CommUserRank)) return "ncclCommUserRank";
  if (!find(library, "ncclCommCuDevice", f.CommCuDevice)) return "ncclCommCuDevice";
  if (!find(library, "ncclSend", f.Send)) return "ncclSend";
  if (!find(library, "ncclRecv", f.Recv)) return "ncclRecv";
  return nullptr;
}

void find_optional(void* library, Functions& f) {
  find(library, "ncclGetLastError", f.GetLastError);
  if (!find(library, "ncclMemAlloc", f.MemAlloc) || !find(library, "ncclMemFree", f.MemFree))
    f.MemAlloc = nullptr, f.MemFree = nullptr;
  if (!find(library, "ncclCommRegister", f.CommRegister) || !find(library, "ncclCommDeregister", f.CommDeregister))
    f.CommRegister = nullptr, f.CommDeregister = nullptr;
}

std::string path_of(const Functions& functions, const char* asked) {
  Dl_info about{};
  if (dladdr(reinterpret_cast<const void*>(functions.GetVersion), &about) != 0 && about.dli_fname != nullptr)
    return about.dli_fname;
  return asked != nullptr ? asked : kFile;
}

/// Of a library that is open. `name`: as it was asked for.
std::string read_library(void* library, const std::string& name, const char* path, Library& out) {
  Functions functions{};
  const char* const missing = find_needed(library, functions);
  if (functions.GetVersion == nullptr) return name + " is not NCCL: it has no ncclGetVersion";
  int version = 0;
  if (functions.GetVersion(&version) != kSuccess) return name + ": ncclGetVersion failed";
  const std::string file = path_of(functions, path);
  if (version < kOldest)
    return file + " is NCCL " + version_text(version) + ", but libddp needs " + version_text(kOldest) + " or newer";
  if (missing != nullptr) return file + " (NCCL " + version_text(version) + ") lacks " + missing;
  find_optional(library, functions);
  out = Library{functions, version, file};
  return {};
}

}  // namespace

std::string open_library(const char* path, Library& out) {
  const std::string name = path != nullptr && path[0] != '\0' ? path : kFile;
  std::string error;
  void* const library = open_file(path, error);
  if (library == nullptr) return name == kFile ? error : "NCCL at " + name + " " + error;
  return read_library(library, name, path, out);
}

std::string find_library(Library& out) {
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_NOLOAD);
  if (library != nullptr) return read_library(library, kFile, nullptr, out);
  static_cast<void>(dlerror());
  return std::string("this process has not loaded ") + kFile +
         " (or has NCCL inside another library, which keeps it to itself)";
}

}  // namespace ddp::cuda::nccl
