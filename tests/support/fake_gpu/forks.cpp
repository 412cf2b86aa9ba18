// SPDX-License-Identifier: Apache-2.0
// A fork of the process that made the runtime. CUDA cannot be used there, and the locks may be held by threads that are not
// there; so this file touches only a few pages that all these processes share.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <new>

#include "support/fake_gpu/runtime.hpp"

namespace ddp::test::fake_gpu {
namespace {

constexpr int32_t kUsedInFork = 3;  // cudaErrorInitializationError

struct Noted {
  std::atomic<size_t> count{0};
  std::array<std::array<char, 120>, 64> texts{};
};

struct Maker {
  pid_t process = ::getpid();
  Noted* noted = make();

  static Noted* make() {
    void* const memory = ::mmap(nullptr, sizeof(Noted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return new (memory) Noted;
  }
};

/// Made with the runtime.
const Maker& maker() {
  static const Maker one;
  return one;
}

}  // namespace

bool is_fork() noexcept { return maker().process != ::getpid(); }

int32_t refuse_in_fork(const Call& call) noexcept {
  Noted& noted = *maker().noted;
  const size_t at = noted.count++;
  if (at < noted.texts.size())
    std::snprintf(noted.texts[at].data(), noted.texts[at].size(),
                  "%s is called in a fork of the process that made the GPU's context", call.name);
  return call.is_nccl ? static_cast<int32_t>(kNcclUnhandledCuda) : kUsedInFork;
}

std::vector<std::string> violations_of_forks() {
  const Noted& noted = *maker().noted;
  std::vector<std::string> all;
  for (size_t at = 0; at < std::min(noted.count.load(), noted.texts.size()); ++at) all.emplace_back(noted.texts[at].data());
  return all;
}

void clear_violations_of_forks() noexcept { maker().noted->count = 0; }

}  // namespace ddp::test::fake_gpu
