// SPDX-License-Identifier: Apache-2.0
// A stranger on the network: finds every TCP port that the given processes listen on, again and again, and does to each what
// a scanner, a broken client or an attacker without the token does. Runs on a thread of its own, so start it after the last
// fork.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace ddp::test {

enum class Attack {
  kBogusFrames,  // 112 bytes that look like two frames of Gloo
  kReset,        // connect, and reset at once
  kSilence,      // connect, and say nothing
  kHalfFrame,    // the first bytes of a frame, then nothing
  kDrip,         // one byte now and then
  kRequest,      // an HTTP request
  kFlood,        // random bytes over as many connections as possible
  kReplay,       // each message of the listener is sent back to it, its answers too
};
inline constexpr std::array kAllAttacks = {Attack::kBogusFrames, Attack::kReset,   Attack::kSilence, Attack::kHalfFrame,
                                           Attack::kDrip,        Attack::kRequest, Attack::kFlood,   Attack::kReplay};
[[nodiscard]] const char* attack_name(Attack attack) noexcept;

/// TCP ports on which these processes of this network namespace listen. Gloo's own, at 127.255.255.255, do not count: the
/// kernel connects nobody to that address (process/port_range_test.cpp).
[[nodiscard]] std::vector<int> listening_ports(const std::vector<pid_t>& processes);

class Stranger {
 public:
  /// `most_open`: connections that it keeps open at a time; `pause_us`: between two rounds over all ports.
  Stranger(std::vector<pid_t> targets, Attack attack, size_t most_open = 256, int pause_us = 500);
  ~Stranger();
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  /// Connections made so far.
  [[nodiscard]] int64_t connections() const noexcept { return connections_; }
  /// No new ones while it rests; those that are open stay.
  void rest(bool paused) noexcept { paused_ = paused; }

 private:
  void run();
  void attack_port(int port);
  void nurse();

  const std::vector<pid_t> targets_;
  const Attack attack_;
  const size_t most_open_;
  const int pause_us_;
  std::vector<int> open_;  // the thread's
  std::atomic<int64_t> connections_{0};
  std::atomic<bool> paused_{false}, stop_{false};
  std::thread thread_;
};

}  // namespace ddp::test
