// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/failure.hpp"

namespace ddp::bootstrap {

bool Failure::set(const Error& cause, Wake wake) noexcept {
  if (broken() && (wake == Wake::kNo || woken_.load())) return false;
  const std::lock_guard waking(waking_);
  std::vector<std::function<void()>> wakers;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = !cause_.has_value();
    if (first) cause_ = cause;
    if (wake == Wake::kYes) {
      if (!woken_.load()) fault_ = cause;
      woken_.store(true);
      wakers.swap(wakers_);
    }
    broken_.store(true, std::memory_order_release);
  }
  for (const auto& call : wakers) call();
  return first;
}

void Failure::check() const {
  if (!broken()) return;
  const std::lock_guard lock(mutex_);
  throw Error(*cause_);
}

void Failure::check_fault() const {
  if (!woken()) return;
  const std::lock_guard lock(mutex_);
  throw Error(*fault_);
}

std::optional<Error> Failure::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void Failure::add_waker(std::function<void()> wake) {
  const std::lock_guard waking(waking_);
  {
    const std::lock_guard lock(mutex_);
    if (!woken_.load()) {
      wakers_.push_back(std::move(wake));
      return;
    }
  }
  wake();
}

}  // namespace ddp::bootstrap
