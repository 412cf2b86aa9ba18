// SPDX-License-Identifier: Apache-2.0
// Cores: sched_getaffinity and the cgroup's quota. Out of memory: memory.events of the cgroup (version 2),
// memory.oom_control (version 1), or the machine's counter in /proc/vmstat.
// Tested by process/ddprun_test.sh.
#include "ddprun/machine.hpp"

#include <netinet/in.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "ddprun/fd.hpp"

namespace ddp::ddprun {
namespace {

constexpr int32_t kFirstPort = 20000;

// Path of our cgroup in the hierarchy with this controller ("" is version 2), or "/".
std::string cgroup_path(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // hierarchy:controllers:path
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    if (line.substr(first + 1, second - first - 1) == controller) return line.substr(second + 1);
  }
  return "/";
}

// The number after `key` in a file of "key number" lines; -1 if the key is missing.
int64_t number_after(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    int64_t number = 0;
    if (words >> word >> number && word == key) return number;
  }
  return -1;
}

// Cores' worth of time the cgroup may use; 0: unlimited or unknown. In a container the own path may not be visible:
// its root then is the container's.
double cpu_quota() {
  for (const auto& folder : {"/sys/fs/cgroup" + cgroup_path(""), std::string("/sys/fs/cgroup")}) {
    std::ifstream file(folder + "/cpu.max");
    double quota = 0, period = 0;
    if (file >> quota >> period && period > 0) return quota / period;  // "max 100000" is not a number: unlimited
  }
  double quota = 0, period = 0;
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return 0;
}

void fill_random(void* data, size_t bytes) {
  auto* at = static_cast<unsigned char*>(data);
  while (bytes > 0) {
    const ssize_t got = getrandom(at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw make_error(DDP_ERROR_IO, "The kernel gives no random bytes: %s.", strerror(errno));
    at += got;
    bytes -= static_cast<size_t>(got);
  }
}

// Can this port be bound on all addresses? 0 lets the kernel choose. Returns the port, or 0.
int32_t try_port(int32_t port) {
  const Fd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (!socket_fd.open() || bind(socket_fd.get(), generic, length) != 0) return 0;
  if (getsockname(socket_fd.get(), generic, &length) != 0) return 0;
  return ntohs(address.sin_port);
}

}  // namespace

int32_t usable_cores() {
  int32_t cores = 1;
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    cores = CPU_COUNT(&mask);
  } else {
    cores = static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN));  // more cores than the mask holds
  }
  const double quota = cpu_quota();
  if (quota > 0) cores = std::min(cores, static_cast<int32_t>(std::ceil(quota)));
  return std::max(cores, 1);
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

NamedHost this_machine() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return {name, usable_cores()};
}

int32_t find_free_port() {
  int32_t end = 32768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> end;
  for (int attempt = 0; attempt < 100 && end > kFirstPort; ++attempt) {
    uint32_t random = 0;
    fill_random(&random, sizeof random);
    const auto width = static_cast<uint32_t>(end - kFirstPort);
    const int32_t port = try_port(kFirstPort + static_cast<int32_t>(random % width));
    if (port > 0) return port;
  }
  const int32_t port = try_port(0);
  if (port == 0) throw make_error(DDP_ERROR_IO, "No free TCP port was found (%s): choose one with --port.", strerror(errno));
  return port;
}

std::string make_token() {
  unsigned char bytes[32];
  fill_random(bytes, sizeof bytes);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

int64_t count_oom_kills() {
  const std::string places[] = {"/sys/fs/cgroup" + cgroup_path("") + "/memory.events", "/sys/fs/cgroup/memory.events",
                                "/sys/fs/cgroup/memory" + cgroup_path("memory") + "/memory.oom_control",
                                "/sys/fs/cgroup/memory/memory.oom_control", "/proc/vmstat"};
  for (const auto& place : places) {
    const int64_t count = number_after(place, "oom_kill");
    if (count >= 0) return count;
  }
  return -1;
}

}  // namespace ddp::ddprun
