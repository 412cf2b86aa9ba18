// SPDX-License-Identifier: Apache-2.0
// Gloo's pairs over connections that other code has admitted. Gloo alone would take the first connection for the peer, and
// read its data; here it makes and accepts no connections.
//
// A pair with a seal (seal.hpp) sends and receives through it, below Gloo's frames: what an attacker on the way changes
// never reaches Gloo, which ends the process for a frame that it does not understand.
//
// A pair gets its descriptor where Gloo puts one itself, in members that are meant for classes derived from Pair. They have
// the same names and meaning in the releases of Debian 12, 13 and sid.
// Throws what Gloo throws (std::exception). One thread at a time.
// Tested by process/gloo_test.cpp and process/hostile_links_test.cpp.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>

// Older releases of Gloo need <cstdint> before their headers.
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/tcp/unbound_buffer.h>

#include "modules/gloo/seal.hpp"

namespace ddp::gloo {

/// A pair that is connected from the beginning.
class AdmittedPair final : public ::gloo::transport::tcp::Pair {
 public:
  /// The descriptor is the pair's unless this throws. `seal` may be NULL.
  AdmittedPair(::gloo::transport::tcp::Context* context, ::gloo::transport::tcp::Device* device, int peer, int descriptor,
               std::unique_ptr<Seal> seal);

  /// Changes while bytes are received or sent: the bytes that the kernel has received, and those that the peer's has
  /// acknowledged.
  [[nodiscard]] uint64_t moved() noexcept;
  /// Packets that arrived behind a gap.
  [[nodiscard]] int64_t gaps() noexcept;
  /// Why it is known that other bytes came than were sent; NULL: it is not.
  [[nodiscard]] const char* changed() const noexcept { return is_changed_ ? seal_->trouble() : nullptr; }

 private:
  // Gloo's, with its lock held.
  bool write(::gloo::transport::tcp::Op& op) override;
  bool read() override;
  void give_up(const ::gloo::NonOwningPtr<::gloo::transport::tcp::UnboundBuffer>& under_way, const char* what);

  uint64_t busy_ = 0;
  const std::unique_ptr<Seal> seal_;
  std::atomic<bool> is_changed_{false};
};

/// Connections to peers, by their number.
class AdmittedPairs final : public ::gloo::transport::tcp::Context {
 public:
  AdmittedPairs(std::shared_ptr<::gloo::transport::tcp::Device> device, int index, int members)
      : Context(std::move(device), index, members) {}

  /// The descriptor is taken, whatever happens.
  void attach(int peer, int descriptor, std::unique_ptr<Seal> seal);
  /// Of the pair to this peer, which was attached.
  [[nodiscard]] uint64_t moved(int peer) noexcept { return pair(peer).moved(); }
  [[nodiscard]] int64_t gaps(int peer) noexcept { return pair(peer).gaps(); }
  [[nodiscard]] const char* changed(int peer) noexcept { return pair(peer).changed(); }

 private:
  [[nodiscard]] AdmittedPair& pair(int peer) noexcept {
    return static_cast<AdmittedPair&>(*pairs_[static_cast<size_t>(peer)]);
  }
};

/// A message under way. Gloo's own waits close all pairs when they time out; these may be made again.
class Transfer final : public ::gloo::transport::tcp::UnboundBuffer {
 public:
  using UnboundBuffer::UnboundBuffer;

  /// End the waits for it.
  void fail(std::exception_ptr error) { signalException(std::move(error)); }

  enum class Wait { kDone, kTimedOut, kAborted };
  /// Throws what ended the pair.
  [[nodiscard]] Wait wait_sent(std::chrono::milliseconds timeout) {
    return wait(sendCv_, sendCompletions_, abortWaitSend_, timeout);
  }
  [[nodiscard]] Wait wait_received(std::chrono::milliseconds timeout) {
    return wait(recvCv_, recvCompletions_, abortWaitRecv_, timeout);
  }

 private:
  [[nodiscard]] Wait wait(std::condition_variable& changed, int& completions, bool& aborted,
                          std::chrono::milliseconds timeout);
};

/// A device whose listening sockets cannot be reached.
[[nodiscard]] std::shared_ptr<::gloo::transport::tcp::Device> make_unreachable_device();

}  // namespace ddp::gloo
