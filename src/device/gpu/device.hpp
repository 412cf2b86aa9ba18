// SPDX-License-Identifier: Apache-2.0
// One GPU, as this process uses it: errors with names, the caller's current device left as it was, memory and streams that
// free themselves.
//
// Every call makes the device current and restores what was current before, unless that device was not used before: making
// it current would take memory there, on the first GPU for every rank of a host. Functions block only where their comment
// states it. Errors: OUT_OF_MEMORY; INVALID_ARGUMENT (a stream or pointer that the runtime refuses); INVALID_STATE (not
// while a stream is captured); PEER_FAILED when the GPU is lost to this process, which no call can repair, so the group ends
// on all ranks; INTERNAL otherwise. Threads: any. Tested by unit/device/gpu_device_test.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "core/tensor.hpp"
#include "device/device.hpp"
#include "device/gpu/gpu_abi.h"
#include "device/gpu/timeline.hpp"
#include "device/memory.hpp"

namespace ddp::gpu {

// Before memory of a device is freed, the device must be done with it, and it may never be: a kernel may wait for a lost
// rank. So each free first waits for the device, for a limited time; memory of work that has not finished by then is left to
// the process.
//
// The runtime has no wait with a limit, so a thread waits, and is left behind when the time is over. It owns what it uses.
// Not while a stream of the device is captured: CUDA allows no wait then, and nothing is freed.
// Threads: any.
class FreeGuard {
 public:
  FreeGuard(const ddp_gpu_table& table, int32_t device_index) noexcept : table_(table), index_(device_index) {}

  /// For how long the device may work; 0: for a minute, as at first. Also for waits that have begun. Never blocks.
  void set_limit(int64_t ms) noexcept { limit_ms_.store(ms > 0 ? ms : kLimitMs); }
  /// From now on `ends()` is called first: does the device's work with other ranks end? An empty function: its last answer
  /// stays.
  void ask(std::function<bool()> ends);
  /// Asks that once more, and not again.
  void ask_last(const std::function<bool()>& ends, const std::string& device, const std::string& owner);
  /// `device` and `owner` are for the warning that memory is left.
  [[nodiscard]] bool may_free(const std::string& device, const std::string& owner) noexcept;

 private:
  static constexpr int64_t kLimitMs = 60'000;
  [[nodiscard]] bool becomes_idle(bool was_stuck) const noexcept;
  void tell(bool was_stuck, const std::string& device, const std::string& owner) const noexcept;

  const ddp_gpu_table& table_;
  const int32_t index_;
  std::atomic<int64_t> limit_ms_{kLimitMs};
  std::mutex mutex_;  // guards what follows
  std::function<bool()> ends_;
  bool hangs_ = false;  // the last answer of ends_
  bool stuck_ = false;  // that, or the device did not become idle
};

/// A name that changes while others read it. Any thread.
class Name {
 public:
  explicit Name(const std::string& text) : text_(std::make_shared<const std::string>(text)) {}
  [[nodiscard]] std::shared_ptr<const std::string> text() const noexcept {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  /// Throws OUT_OF_MEMORY.
  void set(const std::string& text) {
    auto changed = std::make_shared<const std::string>(text);
    const std::lock_guard lock(mutex_);
    text_.swap(changed);
  }

 private:
  mutable std::mutex mutex_;  // guards text_
  std::shared_ptr<const std::string> text_;
};

class Device final : public device::Device, public std::enable_shared_from_this<Device> {
 public:
  /// `owner` names this rank in errors. Throws NOT_SUPPORTED if there is no such GPU.
  Device(const ddp_gpu_table& table, int32_t index, const std::string& owner);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const ddp_gpu_table& table() const noexcept { return table_; }
  [[nodiscard]] int32_t index() const noexcept { return index_; }
  /// "GPU 0 (NVIDIA H100)"
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The rank, for errors that reach other ranks.
  [[nodiscard]] Name& owner() const noexcept { return owner_; }

  /// Throws unless `code` is 0. `doing` completes "while ...": "reducing a bucket".
  void check(int32_t code, const char* doing) const {
    if (code != 0) fail(code, doing);
  }
  [[noreturn]] void fail(int32_t code, const char* doing) const;

  [[nodiscard]] bool is_immediate() const noexcept override { return false; }
  void synchronize() const override;
  void synchronize(void* stream) const override;
  [[nodiscard]] bool is_capturing(void* stream) const override;
  void refuse_capture(void* stream, const char* function, const char* why) const override;

  void within(const std::function<void()>& body) const override;
  /// Throws OUT_OF_MEMORY.
  [[nodiscard]] device::Memory allocate(int64_t bytes, const char* what) const override;
  void free(void* memory) const noexcept override;
  /// Asked before memory is freed.
  [[nodiscard]] FreeGuard& frees() const noexcept { return frees_; }
  /// What it does when, for traces.
  [[nodiscard]] Timeline& timeline() const noexcept { return timeline_; }
  /// Any direction, in the order of the stream. Host memory that is not pinned may block.
  void copy(void* to, const void* from, int64_t bytes, void* stream) const override;
  void zero(void* memory, int64_t bytes, void* stream) const;

  void apply(const device::Operation& operation, const device::Span* spans, int64_t count, ddp_dtype from_dtype,
             ddp_dtype to_dtype, const device::Order& order) const override;
  void follow(const device::Span* spans, int64_t count, const double* decays, int32_t decay_count, ddp_dtype dtype,
              const device::Order& order) const override;
  void hash(const device::Span* spans, int64_t count, void* scratch, uint64_t* out, void* stream) const override;
  void update(const device::UpdateSpan<device::AdamRule>& updates, const device::GradShape& shape,
              const device::Order& order) const override;
  void update(const device::UpdateSpan<device::SgdRule>& updates, const device::GradShape& shape,
              const device::Order& order) const override;

  /// Makes the device current on this thread as long as it lives. A thread that has made no device current would begin to
  /// use GPU 0 with its first call, also with one that frees something.
  class Current {
   public:
    explicit Current(const Device& device);
    /// Or does not, if the device is lost.
    Current(const Device& device, std::nothrow_t) noexcept;
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const Device& device_;
    int32_t before_ = -1;  // -1: it was current already
  };

 private:
  void copy_bytes(const device::Span* spans, int64_t count, ddp_dtype dtype, const char* doing,
                  const device::Order& order) const;

  const ddp_gpu_table& table_;
  int32_t index_;
  mutable Name owner_;
  std::string name_;
  mutable FreeGuard frees_;
  mutable Timeline timeline_{*this};
};

/// Throws INVALID_ARGUMENT unless `memory` is on this device; `what` names it.
void require_on(const Device& device, const void* memory, const char* what);

/// A stream of the library's own.
class Stream {
 public:
  enum class Priority { kNormal, kHigh };
  Stream(const Device& device, Priority priority);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] void* get() const noexcept { return stream_; }

 private:
  const Device& device_;
  void* stream_ = nullptr;
};

/// A point in a stream's order that other streams can wait for.
class Event {
 public:
  explicit Event(const Device& device);
  Event(Event&& other) noexcept : device_(other.device_), event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event();
  void record(void* stream) const;
  /// Everything that is enqueued on the stream from now on comes after the point that was recorded last.
  void hold_back(void* stream) const;
  /// Blocks.
  void synchronize() const;
  [[nodiscard]] bool is_done() const;
  [[nodiscard]] void* get() const noexcept { return event_; }

 private:
  const Device& device_;
  void* event_ = nullptr;
};

/// Zeroed memory on the device. Making it may wait for the device.
using Array = device::Memory;

/// The GPU of a tensor, to which a group has bound it.
[[nodiscard]] inline const Device& of(const Tensor& tensor) noexcept { return static_cast<const Device&>(*tensor.device); }
/// That of the parameters that are on one.
[[nodiscard]] inline const Device& of(const Parameters& table) noexcept {
  return static_cast<const Device&>(*table.device());
}

/// Zeroed page-locked host memory that the device reads and writes too.
class Pinned {
 public:
  Pinned(const Device& device, int64_t bytes, const char* what);
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned();
  [[nodiscard]] std::byte* host() const noexcept { return static_cast<std::byte*>(host_); }
  [[nodiscard]] void* on_device() const noexcept { return on_device_; }

 private:
  const Device& device_;
  void* host_ = nullptr;
  void* on_device_ = nullptr;
};

}  // namespace ddp::gpu
