// SPDX-License-Identifier: Apache-2.0
// An attacker between this process and those that it connects to: every TCP connection over IPv4 that the process makes
// while the object lives leads through it. It reads everything, and damages some bytes when it is asked to. One at a time.
// It takes the place of the C library's connect(), so one file of a program includes it.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "support/check.hpp"
#include "support/hidden.hpp"

namespace ddp::test {

enum class Damage { kNone, kFlip, kDrop, kRepeat, kReorder };

class Middle : NotCopied {
 public:
  Middle();
  ~Middle();

  /// Once, to the next bytes that are this many or more at a time.
  void damage(Damage what, size_t least) noexcept {
    least_ = least;
    next_ = what;
  }
  /// To the next bytes of the first connection, which is that of the control plane.
  void damage_control(Damage what) noexcept {
    only_first_ = true;
    damage(what, 1);
  }
  [[nodiscard]] bool has_damaged() const noexcept { return next_ == Damage::kNone; }
  /// How often these bytes have come by since they were named.
  void look_for(std::string bytes);
  [[nodiscard]] int64_t seen() const noexcept { return seen_; }
  [[nodiscard]] int64_t connections() const noexcept { return connections_; }

  /// In the place of connect().
  int connect(int fd, const sockaddr_in& target);
  inline static std::atomic<Middle*> of_process{nullptr};

 private:
  void accept();
  void pass_on(int here, int there, bool is_first);
  [[nodiscard]] std::string changed(std::string bytes, bool is_first);

  int listener_ = -1;
  sockaddr_in address_{};
  std::atomic<Damage> next_{Damage::kNone};
  std::atomic<size_t> least_{0};
  std::atomic<bool> only_first_{false}, ends_{false};
  std::atomic<int64_t> seen_{0}, connections_{0};
  std::mutex mutex_;                         // guards what follows
  std::map<uint16_t, sockaddr_in> targets_;  // by the port that the process connects from
  std::string wanted_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

inline int real_connect(int fd, const sockaddr* address, socklen_t bytes) noexcept {
  static constinit Hidden hidden("connect");
  return hidden.as<decltype(connect)>()(fd, address, bytes);
}

}  // namespace ddp::test

/// In the place of the C library's.
extern "C" int connect(int fd, const sockaddr* address, socklen_t bytes) {
  ddp::test::Middle* const middle = ddp::test::Middle::of_process;
  if (middle == nullptr || address->sa_family != AF_INET) return ddp::test::real_connect(fd, address, bytes);
  sockaddr_in target{};
  std::memcpy(&target, address, sizeof target);
  return middle->connect(fd, target);
}

namespace ddp::test {

inline Middle::Middle() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  address_.sin_family = AF_INET;
  address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address_;
  auto* const address = reinterpret_cast<sockaddr*>(&address_);
  expect(::bind(listener_, address, bytes) == 0 && ::listen(listener_, 64) == 0 &&
             ::getsockname(listener_, address, &bytes) == 0,
         "the attacker listens");
  acceptor_ = std::thread([this] { accept(); });
  of_process = this;
}

inline Middle::~Middle() {
  of_process = nullptr;
  ends_ = true;
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  ::close(listener_);
}

inline void Middle::look_for(std::string bytes) {
  const std::lock_guard lock(mutex_);
  wanted_ = std::move(bytes);
  seen_ = 0;
}

inline int Middle::connect(int fd, const sockaddr_in& target) {
  const std::lock_guard lock(mutex_);
  const int result = real_connect(fd, reinterpret_cast<const sockaddr*>(&address_), sizeof address_);
  const int error = errno;
  sockaddr_in from{};
  socklen_t bytes = sizeof from;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&from), &bytes) == 0) targets_[from.sin_port] = target;
  errno = error;
  return result;
}

inline void Middle::accept() {
  while (!ends_) {
    pollfd asked{listener_, POLLIN, 0};
    if (::poll(&asked, 1, 20) <= 0) continue;
    sockaddr_in from{};
    socklen_t bytes = sizeof from;
    const int here = ::accept4(listener_, reinterpret_cast<sockaddr*>(&from), &bytes, SOCK_CLOEXEC);
    const int there = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const std::lock_guard lock(mutex_);
    const sockaddr_in target = targets_[from.sin_port];
    if (real_connect(there, reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0) {
      ::close(here), ::close(there);
      continue;
    }
    const bool is_first = connections_++ == 0;
    threads_.emplace_back([this, here, there, is_first] { pass_on(here, there, is_first); });
  }
}

inline std::string Middle::changed(std::string bytes, bool is_first) {
  {
    const std::lock_guard lock(mutex_);
    if (!wanted_.empty() && bytes.find(wanted_) != std::string::npos) ++seen_;
  }
  if (bytes.size() < std::max<size_t>(least_, 4) || (only_first_ && !is_first)) return bytes;
  const size_t half = bytes.size() / 2;
  switch (next_.exchange(Damage::kNone)) {
    case Damage::kNone: break;
    case Damage::kFlip: bytes[half] = static_cast<char>(bytes[half] ^ 0x20); break;
    case Damage::kDrop: bytes.erase(half, 1); break;
    case Damage::kRepeat: return bytes + bytes;
    case Damage::kReorder: return bytes.substr(half) + bytes.substr(0, half);
  }
  return bytes;
}

inline void Middle::pass_on(int here, int there, bool is_first) {
  std::vector<char> bytes(1 << 16);
  int open[] = {here, there};
  while (!ends_ && (open[0] >= 0 || open[1] >= 0)) {
    pollfd asked[] = {{open[0], POLLIN, 0}, {open[1], POLLIN, 0}};
    if (::poll(asked, 2, 20) <= 0) continue;
    for (int side = 0; side < 2; ++side) {
      if (asked[side].revents == 0) continue;
      const int to = side == 0 ? there : here;
      const ssize_t got = ::recv(open[side], bytes.data(), bytes.size(), 0);
      if (got <= 0) {
        ::shutdown(to, SHUT_WR);
        open[side] = -1;
        continue;
      }
      const std::string out = changed({bytes.data(), static_cast<size_t>(got)}, is_first);
      for (size_t sent = 0; sent < out.size();) {
        const ssize_t more = ::send(to, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
        if (more <= 0) break;
        sent += static_cast<size_t>(more);
      }
    }
  }
  ::close(here), ::close(there);
}

}  // namespace ddp::test
