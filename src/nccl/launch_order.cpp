// SPDX-License-Identifier: Apache-2.0
#include "nccl/launch_order.hpp"

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

bool keeps_launch_order(int32_t nccl_version) noexcept {
  const char* const asked = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  return nccl_version >= kWithOrder && asked != nullptr && std::strtol(asked, nullptr, 0) != 0;
}

Error no_launch_order(const std::string& device, int32_t nccl_version) {
  return make_error(DDP_ERROR_NOT_SUPPORTED,
                    "%s has a group with NCCL already, and a second one needs NCCL 2.26.2 or later with "
                    "NCCL_LAUNCH_ORDER_IMPLICIT=1 in the environment before the first group is made (here: NCCL %d, %s); or "
                    "destroy the first group before (include/NCCL.md, \"Several groups on one GPU\")",
                    device.c_str(), nccl_version,
                    nccl_version >= kWithOrder ? "without the variable" : "which has no such order");
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
                    "and mark gradients, in one order on all ranks (include/NCCL.md, \"Several groups on one GPU\")",
                    what);
}

/// The groups of this process on one GPU. Lives as long as one of them.
struct LaunchOrder::OnDevice {
  os::PatientMutex mutex;  // held while a collective is enqueued; guards what follows
  std::vector<LaunchOrder*> members;
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
  for (const LaunchOrder* const member : all->members)
    if (!member->count_->ended.load()) counts.push_back(member->count_);
  return counts;
}

LaunchOrder::LaunchOrder(int32_t device_index, uint64_t id, int32_t ranks, const LaunchCounts& here,
                         const std::vector<std::vector<uint64_t>>& everywhere, const std::function<void()>& check)
    : all_(on_device(device_index)), count_(std::make_shared<LaunchCount>()) {
  count_->id = id;
  count_->ranks = ranks;
  std::unique_lock lock(all_->mutex, std::defer_lock);
  while (!lock.try_lock_for(kLook)) check();
  for (const auto& other : here) {
    const auto with = std::count_if(everywhere.begin(), everywhere.end(), [&](const std::vector<uint64_t>& ids) {
      return std::find(ids.begin(), ids.end(), other->id) != ids.end();
    });
    if (with == ranks) compare_with(other);
    for (LaunchOrder* const member : all_->members)
      if (member->count_ == other && with == other->ranks) member->compare_with(count_);
  }
  for (LaunchOrder* const member : all_->members) member->forget_ended();
  all_->members.push_back(this);
}

LaunchOrder::~LaunchOrder() {
  const std::lock_guard lock(all_->mutex);
  end();
  std::erase(all_->members, this);
}

uint64_t LaunchOrder::word() const {
  const std::lock_guard lock(all_->mutex);
  return word_now();
}

uint64_t LaunchOrder::word_now() const noexcept {
  if (!compared_.any) return 0;
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
}

void LaunchOrder::Turn::done() {
  if (lock_.owns_lock()) ++order_.count_->launched;
}

}  // namespace ddp::nccl
