// SPDX-License-Identifier: Apache-2.0
#include "support/stranger.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>

namespace ddp::test {
namespace {

constexpr size_t kFrameBytes = 56;
constexpr int kNice = 10;
constexpr auto kLook = std::chrono::milliseconds(50);

void add_sockets_of(pid_t process, std::set<std::string>& inodes) {
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory)) {
    char target[64] = "";
    const ssize_t bytes = readlink((folder + "/" + entry->d_name).c_str(), target, sizeof target - 1);
    unsigned long inode = 0;
    if (bytes > 0 && std::sscanf(target, "socket:[%lu]", &inode) == 1) inodes.insert(std::to_string(inode));
  }
  closedir(directory);
}

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{0, 100'000};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return fd;
  ::close(fd);
  return -1;
}

void reset(int fd) {
  const linger at_once{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(fd);
}

void say(int fd, const void* bytes, size_t count) { (void)::send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT); }

// nbytes, opcode, slot, offset, length, roffset, and some data: an operation for which no rank waits.
void say_bogus_frames(int fd) {
  uint64_t words[2 * kFrameBytes / 8];
  for (size_t i = 0; i < std::size(words); ++i) words[i] = i % 7 == 0 ? kFrameBytes : 1 + i;
  say(fd, words, sizeof words);
}

void say_noise(int fd) {
  static thread_local std::mt19937_64 random(15);
  uint64_t words[64];
  for (uint64_t& word : words) word = random();
  say(fd, words, sizeof words);
}

void echo(int fd) {
  char bytes[512];
  const ssize_t got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (got > 0) say(fd, bytes, static_cast<size_t>(got));
}

}  // namespace

const char* attack_name(Attack attack) noexcept {
  constexpr const char* kNames[] = {"bogus frames", "reset", "silence", "half a frame", "drip", "HTTP", "flood", "replay"};
  return kNames[static_cast<size_t>(attack)];
}

std::vector<int> listening_ports(const std::vector<pid_t>& processes) {
  std::set<std::string> inodes;
  for (const pid_t process : processes) add_sockets_of(process, inodes);
  std::vector<int> ports;
  std::ifstream file("/proc/net/tcp");
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word[10];
    for (std::string& one : word) words >> one;
    if (word[3] != "0A" || inodes.count(word[9]) == 0) continue;  // 0A: LISTEN
    if (word[1].starts_with("FFFFFF7F:")) continue;
    ports.push_back(static_cast<int>(std::stol(word[1].substr(word[1].rfind(':') + 1), nullptr, 16)));
  }
  return ports;
}

Stranger::Stranger(std::vector<pid_t> targets, Attack attack, size_t most_open, int pause_us)
    : targets_(std::move(targets)), attack_(attack), most_open_(most_open), pause_us_(pause_us), thread_([this] {
        run();
      }) {}

Stranger::~Stranger() {
  stop_ = true;
  thread_.join();
  for (const int fd : open_) ::close(fd);
}

void Stranger::run() {
  // A stranger computes on a machine of his own.
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice));
  std::vector<int> ports;
  auto next_look = std::chrono::steady_clock::now();
  while (!stop_) {
    if (std::chrono::steady_clock::now() >= next_look) {  // the kernel's table takes milliseconds to read
      ports = listening_ports(targets_);
      next_look = std::chrono::steady_clock::now() + kLook;
    }
    for (const int port : ports)
      if (!paused_) attack_port(port);
    nurse();
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us_));
  }
}

void Stranger::attack_port(int port) {
  const int fd = connect_to(port);
  if (fd < 0) return;
  ++connections_;
  switch (attack_) {
    case Attack::kBogusFrames: say_bogus_frames(fd); break;
    case Attack::kReset: return reset(fd);
    case Attack::kHalfFrame: say(fd, "\x38\0\0\0\0", 5); break;
    case Attack::kRequest: say(fd, "GET / HTTP/1.1\r\nHost: here\r\n\r\n", 30); break;
    case Attack::kFlood: say_noise(fd); break;
    default: break;
  }
  open_.push_back(fd);
  if (open_.size() > most_open_) {
    ::close(open_.front());
    open_.erase(open_.begin());
  }
}

void Stranger::nurse() {
  for (const int fd : open_) {
    if (attack_ == Attack::kDrip) say(fd, "d", 1);
    if (attack_ == Attack::kReplay) echo(fd);
  }
}

}  // namespace ddp::test
