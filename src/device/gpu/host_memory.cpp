// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/host_memory.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>

#include "core/error.hpp"
#include "device/gpu/module.hpp"
#include "os/process.hpp"

namespace ddp::gpu {
namespace {

// As in cuda.h.
using PointerGetAttributes = int (*)(unsigned count, int* attributes, void** data, unsigned long long pointer);
constexpr int kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9;
constexpr unsigned kDeviceMemory = 2;

struct Driver {
  std::atomic<PointerGetAttributes> ask{nullptr};
  std::atomic<uint64_t> found_in{0};  // process number
  std::atomic<unsigned long long> looked_at{0};
};

/// How often the process has loaded a library.
unsigned long long count_loads() noexcept {
  unsigned long long loads = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<unsigned long long*>(out) = info->dlpi_adds;
        return 1;
      },
      &loads);
  return loads;
}

/// NULL: it is not in this process.
PointerGetAttributes find_driver() noexcept {
  static Driver driver;
  if (const PointerGetAttributes found = driver.ask.load())
    return driver.found_in.load() == os::process_number() ? found : nullptr;
  const unsigned long long loads = count_loads();
  if (driver.looked_at.exchange(loads) == loads) return nullptr;
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  if (library == nullptr) return nullptr;
  driver.found_in.store(os::process_number());
  driver.ask.store(reinterpret_cast<PointerGetAttributes>(dlsym(library, "cuPointerGetAttributes")));
  return driver.ask.load();
}

int32_t ask_driver(PointerGetAttributes ask, const void* memory) noexcept {
  unsigned type = 0;
  unsigned managed = 0;
  int ordinal = -1;
  int wanted[] = {kMemoryType, kIsManaged, kDeviceOrdinal};
  void* results[] = {&type, &managed, &ordinal};
  if (ask(3, wanted, results, reinterpret_cast<uintptr_t>(memory)) != 0) return -1;
  return type == kDeviceMemory && managed == 0 ? ordinal : -1;
}

}  // namespace

int32_t hidden_on(const void* memory) noexcept {
  if (const ddp_gpu_table* const table = opened_module()) {
    int32_t device = -1;
    int32_t host_reads = 0;
    return table->pointer_device(memory, &device, &host_reads) == 0 && host_reads == 0 ? device : -1;
  }
  const PointerGetAttributes ask = find_driver();
  return ask != nullptr ? ask_driver(ask, memory) : -1;
}

void require_host(const Tensor& tensor, const char* what, const char* instead) {
  if (tensor.count == 0 || tensor.is_on_gpu()) return;
  if (const int32_t device = hidden_on(tensor.data); device >= 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s was given as host memory, but it is memory of GPU %d: %s", what, device,
                     instead);
}

void require_unregistered(const void* memory, int64_t bytes, const char* function) {
  constexpr int64_t kPage = 4096;
  const PointerGetAttributes ask = find_driver();
  for (int64_t at = 0; ask != nullptr && at < bytes; at += kPage) {
    unsigned type = 0;
    int wanted[] = {kMemoryType};
    void* results[] = {&type};
    const uintptr_t page = reinterpret_cast<uintptr_t>(memory) + static_cast<uintptr_t>(at);
    if (ask(1, wanted, results, page) == 0 && type != 0)
      throw make_error(DDP_ERROR_NOT_SUPPORTED,
                       "%s: these %lld bytes stay private memory: the NVIDIA driver knows them (memory of a GPU, managed "
                       "memory, or registered with cudaHostRegister)",
                       function, static_cast<long long>(bytes));
  }
}

}  // namespace ddp::gpu
