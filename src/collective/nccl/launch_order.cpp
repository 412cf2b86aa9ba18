// SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/launch_order.hpp"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>

#include "os/clock.hpp"

namespace ddp::nccl {
namespace {

constexpr int32_t kWithOrder = 22602;  // NCCL_LAUNCH_ORDER_IMPLICIT
constexpr auto kLook = std::chrono::milliseconds(10);

/// splitmix64's last step.
uint64_t mix(uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

OrderedBy who_orders(int32_t nccl_version) noexcept {
  const char* const asked = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  return nccl_version >= kWithOrder && asked != nullptr && std::strtol(asked, nullptr, 0) != 0 ? OrderedBy::kNccl
                                                                                               : OrderedBy::kEvents;
}

uint64_t new_group_id() {
  uint64_t id = 0;
  if (getrandom(&id, sizeof id, GRND_NONBLOCK) != static_cast<ssize_t>(sizeof id))
    id = mix(static_cast<uint64_t>(os::now_ns()) ^ reinterpret_cast<uintptr_t>(&id));
  return id | 1;
}

Error order_mismatch(const char* what) {
  return make_error(DDP_ERROR_DIFFERENT_CALLS,
                    "the ranks use several groups on their GPUs in different orders: when they came to %s, they had not "
                    "begun as many collectives of another group; NCCL would wait for ever. Make the calls of all groups, "
                    "and mark gradients, in one order on all ranks (include/README.md, \"Several groups on one GPU\")",
                    what);
}

/// The groups of this process on one GPU. Lives as long as one of them.
struct LaunchOrder::OnDevice {
  struct Last {
    const LaunchOrder* by = nullptr;  // NULL: there was none
    uint64_t capture = 0;
  };
  os::PatientMutex mutex;  // held while a collective is enqueued; guards what follows
  std::vector<LaunchOrder*> members;
  Last live, captured;

  [[nodiscard]] Last& last(uint64_t capture) noexcept { return capture == 0 ? live : captured; }
};

std::shared_ptr<LaunchOrder::OnDevice> LaunchOrder::on_device(int32_t index) {
  static std::mutex mutex;
  static std::map<int32_t, std::weak_ptr<OnDevice>> devices;
  const std::lock_guard lock(mutex);
  std::weak_ptr<OnDevice>& place = devices[index];
  std::shared_ptr<OnDevice> found = place.lock();
  if (found == nullptr) place = found = std::make_shared<OnDevice>();
  return found;
}

LaunchCounts LaunchOrder::present(int32_t device_index) {
  const std::shared_ptr<OnDevice> all = on_device(device_index);
  const std::lock_guard lock(all->mutex);
  LaunchCounts counts;
  for (const LaunchOrder* const member : all->members) counts.push_back(member->count_);
  return counts;
}

LaunchOrder::LaunchOrder(const gpu::Device& device, void* stream, const Group& group, const LaunchCounts& here,
                         const std::vector<std::vector<uint64_t>>& everywhere, const std::function<void()>& check)
    : device_(device),
      stream_(stream),
      by_(group.by),
      all_(on_device(device.index())),
      count_(std::make_shared<LaunchCount>()),
      live_(device),
      captured_(device) {
  count_->id = group.id;
  count_->ranks = group.ranks;
  std::unique_lock lock(all_->mutex, std::defer_lock);
  while (!lock.try_lock_for(kLook)) check();
  for (const auto& other : here) {
    const auto with = std::count_if(everywhere.begin(), everywhere.end(), [&](const std::vector<uint64_t>& ids) {
      return std::find(ids.begin(), ids.end(), other->id) != ids.end();
    });
    if (with == group.ranks) compare_with(other);
    for (LaunchOrder* const member : all_->members)
      if (member->count_ == other && with == other->ranks) member->compare_with(count_);
  }
  for (LaunchOrder* const member : all_->members) member->forget_ended();
  all_->members.reserve(all_->members.size() + 1);
  // One that was alone until now has noted nothing.
  if (LaunchOrder* const first = all_->members.size() == 1 ? all_->members.front() : nullptr;
      first != nullptr && by_ == OrderedBy::kEvents && first->device_.capture_of(first->stream_) == 0) {
    first->live_.record(first->stream_);
    all_->live = {first, 0};
  }
  all_->members.push_back(this);
}

LaunchOrder::~LaunchOrder() {
  const std::lock_guard lock(all_->mutex);
  count_->ended = true;
  std::erase(all_->members, this);
  for (OnDevice::Last* const last : {&all_->live, &all_->captured})
    if (last->by == this) *last = {};
}

bool LaunchOrder::is_chained() const { return by_ == OrderedBy::kEvents && all_->members.size() > 1; }

bool LaunchOrder::has_company() const {
  const std::lock_guard lock(all_->mutex);
  return is_chained();
}

uint64_t LaunchOrder::word() const {
  const std::lock_guard lock(all_->mutex);
  return word_now();
}

/// Where NCCL keeps the order, other orders of the hosts are NCCL's business too.
uint64_t LaunchOrder::word_now() const noexcept {
  if (by_ == OrderedBy::kNccl || !compared_.any) return 0;
  uint64_t sum = compared_.ended;
  for (const auto& other : compared_.with) sum += mix(other->id) * other->launched.load();
  const auto half = static_cast<uint32_t>(mix(sum));
  return half | static_cast<uint64_t>(~half) << 32;
}

void LaunchOrder::compare_with(const std::shared_ptr<const LaunchCount>& other) {
  compared_.with.push_back(other);
  compared_.any = true;
}

/// A program may make groups again and again.
void LaunchOrder::forget_ended() noexcept {
  for (const auto& other : compared_.with)
    if (other->ended.load()) compared_.ended += mix(other->id) * other->launched.load();
  std::erase_if(compared_.with, [](const auto& other) { return other->ended.load(); });
}

LaunchOrder::Turn::Turn(LaunchOrder& order, const std::atomic<bool>& usable)
    : order_(order), lock_(order.all_->mutex, std::defer_lock) {
  while (!lock_.try_lock_for(kLook))
    if (!usable.load()) return;  // and the collective is not made
  order_.last_word_.store(order_.word_now());
  chained_ = order_.is_chained();
  if (!chained_) return;
  capture_ = order_.device_.capture_of(order_.stream_);
  const OnDevice::Last& last = order_.all_->last(capture_);
  if (last.by == nullptr || last.by == &order_ || last.capture != capture_) return;
  (capture_ == 0 ? last.by->live_ : last.by->captured_).hold_back(order_.stream_);
}

void LaunchOrder::Turn::done() {
  if (!lock_.owns_lock()) return;
  ++order_.count_->launched;
  if (!chained_) return;
  (capture_ == 0 ? order_.live_ : order_.captured_).record(order_.stream_);
  order_.all_->last(capture_) = {&order_, capture_};
}

}  // namespace ddp::nccl
