// SPDX-License-Identifier: Apache-2.0
// A stranger in the place of a rank: he keeps the banner that a port sends to each caller, takes the port as soon as it is
// free, and answers each caller, without the token. Runs on a thread of its own, so start it after the last fork.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ddp::test {

/// The address at which a process listens on this port, from the kernel; else the loopback.
inline sockaddr_in place_of_port(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::ifstream file("/proc/net/tcp");
  for (std::string line; std::getline(file, line);) {
    unsigned host = 0, at = 0, state = 0;
    if (std::sscanf(line.c_str(), " %*d: %X:%X %*X:%*X %X", &host, &at, &state) == 3 && state == TCP_LISTEN &&
        at == static_cast<unsigned>(port))
      address.sin_addr.s_addr = host;
  }
  return address;
}

class Impostor {
 public:
  enum class Manner {
    kRefuses,   // the banner, then a refusal with a text of his own
    kWelcomes,  // the banner, then a wrong proof
    kGarbage,   // one byte
    kSilent,    // takes connections and sends nothing
    kHolds,     // the banner, then nothing
    kCloses     // ends each connection at once
  };
  static constexpr std::array kManners = {Manner::kRefuses, Manner::kWelcomes, Manner::kGarbage,
                                          Manner::kSilent,  Manner::kHolds,    Manner::kCloses};
  static const char* name_of(Manner manner) {
    constexpr std::array kNames = {"refuses", "welcomes", "garbage", "silent", "holds", "closes"};
    return kNames[static_cast<size_t>(manner)];
  }

  struct Place {
    sockaddr_in where{};
    std::string banner;
  };
  /// A place that another process has now, with its banner; "" if it sends none.
  static Place look_at(int port) {
    Place place{place_of_port(port), ""};
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char bytes[512];
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&place.where), sizeof place.where) == 0) {
      pollfd readable{fd, POLLIN, 0};
      if (::poll(&readable, 1, 500) > 0)
        if (const ssize_t got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT); got > 0)
          place.banner.assign(bytes, static_cast<size_t>(got));
    }
    ::close(fd);
    return place;
  }

  Impostor(Manner manner, std::vector<Place> places)
      : manner_(manner), places_(std::move(places)), listeners_(places_.size(), -1), thread_([this] { run(); }) {}
  ~Impostor() {
    stop_ = true;
    thread_.join();
    for (const int fd : listeners_)
      if (fd >= 0) ::close(fd);
    for (const int fd : open_) ::close(fd);
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;

  /// Until he has all places; false after 10 s.
  bool wait_until_taken() const {
    for (int i = 0; i < 10'000; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      if (taken_ == places_.size()) return true;
    return false;
  }
  [[nodiscard]] int answered() const { return answered_; }

 private:
  void run() {
    while (!stop_) {
      for (size_t i = 0; i < places_.size(); ++i) {
        if (listeners_[i] < 0) take(i);
        if (listeners_[i] >= 0) serve(i);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  void take(size_t i) {
    const int on = 1;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&places_[i].where), sizeof places_[i].where) == 0 &&
        ::listen(fd, 64) == 0) {
      listeners_[i] = fd;
      ++taken_;
    } else {
      ::close(fd);
    }
  }

  static std::string frame(uint8_t type, const std::string& body) {
    const auto length = static_cast<uint32_t>(body.size());
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + static_cast<char>(type) + body;
  }

  void serve(size_t i) {
    const int fd = ::accept4(listeners_[i], nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    ++answered_;
    const auto say = [fd](const std::string& bytes) { (void)::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL); };
    const bool shows_banner = manner_ == Manner::kRefuses || manner_ == Manner::kWelcomes || manner_ == Manner::kHolds;
    if (manner_ == Manner::kGarbage) say("x");
    if (shows_banner) say(places_[i].banner);
    if (manner_ == Manner::kRefuses || manner_ == Manner::kWelcomes) {
      char bytes[4096];
      pollfd readable{fd, POLLIN, 0};
      if (::poll(&readable, 1, 200) > 0) (void)::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    }
    constexpr uint8_t kWelcome = 3, kRefuse = 4;
    if (manner_ == Manner::kWelcomes) say(frame(kWelcome, std::string(32, 'w')));
    if (manner_ == Manner::kRefuses) {
      const std::string text = "said by a stranger";
      const std::array<int32_t, 2> fenced_by_nobody = {13, -1};
      const auto length = static_cast<uint32_t>(text.size());
      say(frame(kRefuse, std::string(reinterpret_cast<const char*>(&fenced_by_nobody), sizeof fenced_by_nobody) +
                             std::string(reinterpret_cast<const char*>(&length), sizeof length) + text));
    }
    if (manner_ == Manner::kCloses || manner_ == Manner::kRefuses)
      ::close(fd);
    else
      open_.push_back(fd);
  }

  const Manner manner_;
  const std::vector<Place> places_;
  std::vector<int> listeners_, open_;  // the thread's
  std::atomic<size_t> taken_{0};
  std::atomic<int> answered_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ddp::test
