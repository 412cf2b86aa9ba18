#include "device/gpu/free_guard.hpp"

#include <utility>

#include "os/log.hpp"

namespace ddp::gpu {

void FreeGuard::ask(std::function<bool()> ends) {
  const std::lock_guard lock(mutex_);
  ends_ = std::move(ends);
}

bool FreeGuard::may_free(const std::string& device, const std::string& owner) noexcept {
  const std::lock_guard lock(mutex_);
  const bool was_stuck = stuck_;
  if (ends_) stuck_ = !ends_();
  if (stuck_ && !was_stuck)
    os::log(DDP_LOG_WARNING, "%s works on something that does not end; what %s has in its memory is left to the process",
            device.c_str(), owner.c_str());
  return !stuck_;
}

}  // namespace ddp::gpu
