#include "comm/failure.hpp"

namespace ddp {

bool Failure::set(const Error& cause) noexcept {
  if (broken()) return false;
  const std::lock_guard waking(waking_);
  std::vector<std::function<void()>> wakers;
  {
    const std::lock_guard lock(mutex_);
    if (cause_.has_value()) return false;
    cause_ = cause;
    wakers.swap(wakers_);
    broken_.store(true, std::memory_order_release);
  }
  for (const auto& wake : wakers) wake();
  return true;
}

void Failure::check() const {
  if (!broken()) return;
  const std::lock_guard lock(mutex_);
  throw Error(*cause_);
}

std::optional<Error> Failure::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void Failure::add_waker(std::function<void()> wake) {
  const std::lock_guard waking(waking_);
  {
    const std::lock_guard lock(mutex_);
    if (!cause_.has_value()) {
      wakers_.push_back(std::move(wake));
      return;
    }
  }
  wake();
}

}  // namespace ddp
