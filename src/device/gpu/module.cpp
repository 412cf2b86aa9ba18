// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/module.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "os/module_files.hpp"
#include "os/process.hpp"

namespace ddp::gpu {
namespace {

constexpr const char* kFile = "libddp_cuda.so";

std::atomic<const ddp_gpu_table*>& table_of_tests() noexcept {
  static std::atomic<const ddp_gpu_table*> table{nullptr};
  return table;
}

struct Opened {
  std::atomic<const ddp_gpu_table*> table{nullptr};
  std::atomic<uint64_t> process{0};
};
Opened& opened() noexcept {
  static Opened opened;
  return opened;
}
void note_opened(const ddp_gpu_table* table) noexcept {
  opened().process.store(os::process_number());
  opened().table.store(table);
}

}  // namespace

const ddp_gpu_table& open_module(const std::vector<std::string>& candidates) {
  const os::OpenedModule module =
      os::open_module("the CUDA module", candidates, "install the one that was built for this system");
  if (module.handle != nullptr) {
    const auto query = reinterpret_cast<ddp_gpu_query_fn>(dlsym(module.handle, DDP_GPU_QUERY_NAME));
    const ddp_gpu_table* const table = query != nullptr ? query(DDP_GPU_VERSION) : nullptr;
    if (table == nullptr || table->struct_size < static_cast<int64_t>(sizeof(ddp_gpu_table)))
      throw make_error(DDP_ERROR_NOT_SUPPORTED,
                       "the CUDA module %s belongs to another version of libddp; install both from the same release",
                       module.file.c_str());
    return *table;
  }
  throw make_error(DDP_ERROR_NOT_SUPPORTED,
                   "CUDA tensors need the module libddp_cuda.so, which is not installed (searched: %s); install it, build "
                   "libddp with -DDDP_CUDA=ON, or set DDP_MODULE_PATH to its folder",
                   os::listed(candidates).c_str());
}

const ddp_gpu_table& load_module() {
  if (const ddp_gpu_table* const table = table_of_tests().load()) return *table;
  const std::vector<std::string> candidates = os::module_candidates(kFile);
  const ddp_gpu_table& table = open_module(candidates);
  note_opened(&table);
  return table;
}

const ddp_gpu_table* opened_module() noexcept {
  const ddp_gpu_table* const table = opened().table.load();
  return table != nullptr && opened().process.load() == os::process_number() ? table : nullptr;
}

int32_t count_devices(const ddp_gpu_table& table) {
  int32_t driver = 0;
  const int32_t asked = table.driver_version(&driver);
  int32_t count = 0;
  const int32_t code = asked != 0 ? asked : table.device_count(&count);
  const int32_t kind = table.error_kind(code);
  if (driver == 0 && (kind == DDP_GPU_NO_DRIVER || code == 0))
    throw make_error(DDP_ERROR_NOT_SUPPORTED, "there is no NVIDIA driver on this machine; install one for %s or later",
                     table.name);
  if (kind == DDP_GPU_NO_DRIVER)
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "this machine's NVIDIA driver is for CUDA %d.%d, which is too old for the CUDA module (%s); update the "
                     "driver, or build libddp with an older CUDA",
                     driver / 1000, driver % 1000 / 10, table.name);
  if (kind == DDP_GPU_NOT_READY)
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "the GPUs of this machine are not set up: %s (%s); start NVIDIA's fabric manager "
                     "(nvidia-fabricmanager.service, of the driver's version)",
                     table.error_text(code), table.error_name(code));
  if (kind == DDP_GPU_NO_DEVICE || (code == 0 && count == 0)) {
    const char* const visible = getenv("CUDA_VISIBLE_DEVICES");
    throw make_error(DDP_ERROR_NOT_SUPPORTED, "this process sees no GPU (CUDA_VISIBLE_DEVICES is %s)",
                     visible == nullptr ? "not set" : visible);
  }
  if (code != 0)
    throw make_error(DDP_ERROR_NOT_SUPPORTED, "the GPUs cannot be used: %s (%s)", table.error_text(code),
                     table.error_name(code));
  return count;
}

const ddp_nccl_table& load_nccl(const ddp_gpu_table& table) {
  const ddp_nccl_table* nccl = nullptr;
  std::array<char, 1024> error{};
  if (table.open_nccl(secure_getenv("DDP_NCCL_LIBRARY"), &nccl, error.data(), static_cast<int64_t>(error.size())) != 0 ||
      nccl == nullptr)
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "NCCL cannot be used: %s; install it (libnccl2 in NVIDIA's repository, or the Python package "
                     "nvidia-nccl), or set DDP_NCCL_LIBRARY to its file libnccl.so.2",
                     error.data());
  return *nccl;
}

const ddp_nccl_table& find_nccl(const ddp_gpu_table& table) {
  const ddp_nccl_table* nccl = nullptr;
  std::array<char, 1024> error{};
  if (table.find_nccl(&nccl, error.data(), static_cast<int64_t>(error.size())) != 0 || nccl == nullptr)
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "nccl_comm cannot be used: %s; it must come from the one NCCL of this process, a shared library",
                     error.data());
  return *nccl;
}

void set_table(const ddp_gpu_table* table) noexcept {
  table_of_tests().store(table);
  note_opened(table);
}

}  // namespace ddp::gpu
