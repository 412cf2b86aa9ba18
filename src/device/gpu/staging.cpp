// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/staging.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "os/clock.hpp"
#include "os/thread.hpp"

namespace ddp::gpu {
namespace {

constexpr int64_t kBusyNs = 100'000;   // of looks without a pause: a small copy takes some microseconds
constexpr int64_t kPauseNs = 100'000;  // between looks, after that

template <class Done>
void wait_until(const Done& done, const WaitCheck& check) {
  for (const int64_t begin_ns = os::now_ns(); !done();) {
    check();
    const timespec pause{0, kPauseNs};
    os::now_ns() - begin_ns < kBusyNs ? static_cast<void>(sched_yield()) : static_cast<void>(nanosleep(&pause, nullptr));
  }
}

}  // namespace

struct Staging::Block {
  Block(const Device& device, int64_t size)
      : memory(device, size, "a message of a tensor on a GPU"), last(device), bytes(size) {}

  Pinned memory;
  Event last;  // behind its last copy
  const int64_t bytes;
  bool is_known = true;  // false: a copy may run that no event is behind
};

Staging::Staging(std::shared_ptr<const Device> device) : device_(std::move(device)) {}
Staging::~Staging() = default;

std::unique_ptr<Staging::Block> Staging::find(int64_t bytes, int32_t* busy) {
  const std::lock_guard lock(mutex_);
  *busy = 0;
  for (std::unique_ptr<Block>& each : free_) {
    if (each->bytes != bytes || !each->is_known) continue;
    if (each->last.is_done()) {
      std::swap(each, free_.back());
      std::unique_ptr<Block> found = std::move(free_.back());
      free_.pop_back();
      return found;
    }
    ++*busy;
  }
  if (*busy < kMostBusy) free_.reserve(++made_);
  return nullptr;
}

Staging::Lease Staging::take(int64_t bytes, const WaitCheck& check) {
  const auto size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(bytes, kLeastBytes))));
  std::unique_ptr<Block> block;
  int32_t busy = 0;
  wait_until(
      [&] {
        block = find(size, &busy);
        return block != nullptr || busy < kMostBusy;
      },
      check);
  if (block == nullptr) block = std::make_unique<Block>(*device_, size);
  return {shared_from_this(), std::move(block)};
}

void Staging::give_back(std::unique_ptr<Block> block) noexcept {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(block));
}

Staging::Lease::Lease(std::shared_ptr<Staging> owner, std::unique_ptr<Block> block)
    : owner_(std::move(owner)), block_(std::move(block)) {}

Staging::Lease::Lease(Lease&& other) noexcept = default;

Staging::Lease::~Lease() {
  if (block_ != nullptr) owner_->give_back(std::move(block_));
}

std::byte* Staging::Lease::data() const noexcept { return block_->memory.host(); }

void Staging::Lease::check_stream(void* stream) { block_->last.record(stream); }

void Staging::Lease::copy(void* to, const void* from, int64_t bytes, void* stream) {
  check_stream(stream);
  block_->is_known = false;
  owner_->device_->copy(to, from, bytes, stream);
  block_->last.record(stream);
  block_->is_known = true;
}

void Staging::Lease::fetch(const std::byte* from, int64_t bytes, void* stream) { copy(data(), from, bytes, stream); }
void Staging::Lease::store(std::byte* to, int64_t bytes, void* stream) { copy(to, data(), bytes, stream); }

bool Staging::Lease::is_done() const {
  if (os::is_library_thread()) static_cast<void>(owner_->device_->table().relax_capture());
  return block_->last.is_done();
}

void Staging::Lease::await(const WaitCheck& check) const {
  wait_until([this] { return is_done(); }, check);
}

}  // namespace ddp::gpu
