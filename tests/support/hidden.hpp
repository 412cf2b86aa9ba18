// SPDX-License-Identifier: Apache-2.0
// The function of the C library that one of a test's program hides.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace ddp::test {

/// Looked up when it is first needed, without the lock that a local variable would have: libraries start threads of their
/// own which may call it, and a fork meanwhile would leave the lock taken for ever. Any thread.
///
///     static constinit Hidden hidden("connect");
///     return hidden.as<decltype(connect)>()(fd, address, bytes);
class Hidden {
 public:
  constexpr explicit Hidden(const char* name) noexcept : name_(name) {}
  template <class Function>
  [[nodiscard]] Function* as() noexcept {
    void* function = function_.load(std::memory_order_relaxed);
    if (function == nullptr) {
      function = dlsym(RTLD_NEXT, name_);
      function_.store(function, std::memory_order_relaxed);
    }
    return reinterpret_cast<Function*>(function);
  }

 private:
  const char* name_;
  std::atomic<void*> function_{nullptr};
};

}  // namespace ddp::test
