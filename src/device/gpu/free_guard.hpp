// CUDA frees memory when the device is idle, which it may never be again. Before each free somebody says, after a limited
// time, whether what runs comes to an end; if not, memory is left to the process.
// Threads: any.
// Tested by gpu_host/lent_communicator_test.cpp.
#pragma once

#include <functional>
#include <mutex>
#include <string>

namespace ddp::gpu {

class FreeGuard {
 public:
  /// `ends()` is asked from now on. An empty function: it is as it said last.
  void ask(std::function<bool()> ends);
  /// `device` and `owner` are for the one line that says that it may not.
  [[nodiscard]] bool may_free(const std::string& device, const std::string& owner) noexcept;

 private:
  std::mutex mutex_;  // guards what follows
  std::function<bool()> ends_;
  bool stuck_ = false;
};

}  // namespace ddp::gpu
