// SPDX-License-Identifier: Apache-2.0
#include "exchange/open_queues.hpp"

#include "exchange/progress_queue.hpp"

namespace ddp::collective {

void OpenQueues::add(int32_t channel, ProgressQueue& queue) noexcept {
  const std::lock_guard lock(mutex_);
  queues_[static_cast<size_t>(channel)] = &queue;
  open_.fetch_or(bit(channel));
}

void OpenQueues::remove(int32_t channel) noexcept {
  const std::lock_guard lock(mutex_);
  queues_[static_cast<size_t>(channel)] = nullptr;
  open_.fetch_and(~bit(channel));
}

bool OpenQueues::poke_all_but(int32_t channel) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  bool advanced = false;
  for (size_t each = 0; each < queues_.size(); ++each)
    if (queues_[each] != nullptr && each != static_cast<size_t>(channel))
      advanced = queues_[each]->poke(kPokeBytes) || advanced;
  return advanced;
}

}  // namespace ddp::collective
