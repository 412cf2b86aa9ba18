// SPDX-License-Identifier: Apache-2.0
#include "ddprun/findings.hpp"

#include <ifaddrs.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "ddprun/binding.hpp"
#include "ddprun/fd.hpp"
#include "ddprun/machine.hpp"
#include "ddprun/numbers.hpp"

namespace ddp::ddprun {
namespace {

constexpr int64_t kFewDescriptors = 1024;

/// "32768K" of the largest cache of processor 0; -1 if the kernel does not say.
int64_t read_cache() {
  int64_t largest = -1;
  for (int index = 0; index < 8; ++index) {
    int64_t size = 0;
    char unit = 0;
    const std::string text = first_line("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    if (sscanf(text.c_str(), "%ld%c", &size, &unit) < 1) continue;
    largest = std::max(largest, size * (unit == 'M' ? kMiB : unit == 'K' ? 1024 : 1));
  }
  return largest;
}

int64_t read_limit(decltype(RLIMIT_NOFILE) which) {
  rlimit limit{};
  if (getrlimit(which, &limit) != 0) return -1;
  return limit.rlim_cur == RLIM_INFINITY ? INT64_MAX : static_cast<int64_t>(limit.rlim_cur);
}

int64_t read_available() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    long long kib = 0;
    if (sscanf(line.c_str(), "MemAvailable: %lld kB", &kib) == 1) return kib * 1024;
  }
  return -1;
}

std::string text_of(const sockaddr* address) {
  char text[NI_MAXHOST] = "";
  const socklen_t size = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

/// "eth0 (10.0.0.2)": from where this machine reaches `host`, as the kernel routes. Nothing is sent.
std::string way_to(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (host.empty() || getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return "";
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  const Fd probe(socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool known = probe.open() && connect(probe.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                     getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0;
  freeaddrinfo(found);
  if (!known) return "";
  std::string address = text_of(reinterpret_cast<const sockaddr*>(&own));
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return address;
  std::string name = address;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next)
    if (each->ifa_addr != nullptr && (each->ifa_addr->sa_family == AF_INET || each->ifa_addr->sa_family == AF_INET6) &&
        text_of(each->ifa_addr) == address)
      name = std::string(each->ifa_name) + " (" + address + ")";
  freeifaddrs(all);
  return name;
}

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  ..."
std::string read_driver() {
  std::istringstream words(first_line("/proc/driver/nvidia/version"));
  for (std::string word; words >> word;)
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  return "";
}

std::string plural(int64_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

std::string size_text(int64_t bytes) {
  char text[40];
  if (bytes >= 1024 * kMiB)
    snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / static_cast<double>(1024 * kMiB));
  else
    snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
  return text;
}

bool chooses(const std::string& setting, const char* word) {
  return setting.find("[" + std::string(word) + "]") != std::string::npos;
}

void judge_cores(const Machine& machine, std::vector<Finding>& findings) {
  const std::string have = plural(machine.cores, "core") + " for " + plural(machine.ranks, "rank");
  if (machine.ranks > machine.cores)
    findings.push_back({Level::kProblem, have + ": ranks wait for each other's turn; start at most " +
                                             std::to_string(machine.cores) +
                                             " here (-n, or a:" + std::to_string(machine.cores) + " in --hosts)"});
  else
    findings.push_back({Level::kFine, have});
  if (machine.cores_of_machine > machine.cores)
    findings.push_back(
        {Level::kAdvice, "only " + std::to_string(machine.cores) + " of the machine's " +
                             std::to_string(machine.cores_of_machine) +
                             " cores may be used here: a container's quota, taskset or the batch system says so"});
  if (machine.cache_bytes > 0) findings.push_back({Level::kFine, "last-level cache: " + size_text(machine.cache_bytes)});
  if (machine.numa_nodes > 1)
    findings.push_back({Level::kFine, plural(machine.numa_nodes, "NUMA node") + ": ddprun binds each rank to one (--bind)"});
}

void judge_memory(const Machine& machine, std::vector<Finding>& findings) {
  if (machine.available_bytes >= 0)
    findings.push_back(
        {machine.available_bytes < 512 * kMiB ? Level::kAdvice : Level::kFine,
         size_text(machine.available_bytes) + " of memory are free" +
             (machine.available_bytes < 512 * kMiB ? ": gradients and the optimizer's state need 16 bytes a parameter"
                                                   : "")});
  if (machine.huge_pages.empty())
    findings.push_back(
        {Level::kAdvice, "the kernel has no transparent huge pages: on virtual machines memory is up to half as fast"});
  else if (chooses(machine.huge_pages, "never"))
    findings.push_back({Level::kAdvice,
                        "huge pages are switched off: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled lets "
                        "large arrays have them, on virtual machines up to twice as fast"});
  else
    findings.push_back({Level::kFine, "huge pages: " + machine.huge_pages});
  if (chooses(machine.shared_huge_pages, "deny"))
    findings.push_back({Level::kAdvice,
                        "huge pages are denied to shared memory, in which the ranks of a machine meet: echo never > "
                        "/sys/kernel/mm/transparent_hugepage/shmem_enabled leaves the choice to libddp"});
}

void judge_limits(const Machine& machine, std::vector<Finding>& findings) {
  if (machine.descriptors >= 0 && machine.descriptors < kFewDescriptors)
    findings.push_back({Level::kProblem, "a process may open " + std::to_string(machine.descriptors) +
                                             " files and connections only: ulimit -n " + std::to_string(kFewDescriptors) +
                                             " or more"});
  else if (machine.descriptors >= 0)
    findings.push_back({Level::kFine, "a process may open " +
                                          (machine.descriptors == INT64_MAX ? std::string("any number of")
                                                                            : std::to_string(machine.descriptors)) +
                                          " files and connections"});
  if (!machine.gpu_driver.empty() && machine.locked_bytes >= 0 && machine.locked_bytes < 64 * kMiB)
    findings.push_back({Level::kAdvice, "a process may lock " + size_text(machine.locked_bytes) +
                                            " of memory, which NCCL needs over InfiniBand: ulimit -l unlimited"});
}

void judge_rest(const Machine& machine, std::vector<Finding>& findings) {
  if (machine.several_machines && machine.interface.empty())
    findings.push_back(
        {Level::kProblem, "it is not known by which interface the other machines are reached: set DDP_SOCKET_IFNAME"});
  else if (!machine.interface.empty())
    findings.push_back(
        {Level::kFine, "the way to rank 0: " + machine.interface + "; DDP_SOCKET_IFNAME chooses another interface"});
  if (machine.several_machines && machine.slow_start_idle == 1)
    findings.push_back({Level::kAdvice,
                        "connections begin slowly again after each pause: sysctl net.ipv4.tcp_slow_start_after_idle=0 "
                        "helps where hosts are milliseconds apart"});
  findings.push_back({Level::kFine, machine.gpu_driver.empty() ? "no NVIDIA driver: tensors in host memory only"
                                                               : "NVIDIA driver " + machine.gpu_driver});
  findings.push_back({machine.library.empty() ? Level::kProblem : Level::kFine,
                      machine.library.empty() ? "libddp was not found" : machine.library});
}

}  // namespace

Machine read_machine(int32_t ranks, const std::string& other) {
  Machine machine;
  machine.ranks = ranks;
  machine.cores = usable_cores();
  machine.cores_of_machine = static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  machine.cache_bytes = read_cache();
  machine.numa_nodes = static_cast<int32_t>(read_topology("/sys/devices/system", usable_processors()).nodes.size());
  machine.huge_pages = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  machine.shared_huge_pages = first_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  machine.descriptors = read_limit(RLIMIT_NOFILE);
  machine.locked_bytes = read_limit(RLIMIT_MEMLOCK);
  machine.available_bytes = read_available();
  machine.several_machines = !other.empty();
  machine.interface = way_to(other);
  machine.gpu_driver = read_driver();
  const std::string slow_start = first_line("/proc/sys/net/ipv4/tcp_slow_start_after_idle");
  machine.slow_start_idle = slow_start.empty() ? -1 : std::atoll(slow_start.c_str());
  return machine;
}

std::vector<Finding> judge(const Machine& machine) {
  std::vector<Finding> findings;
  judge_cores(machine, findings);
  judge_memory(machine, findings);
  judge_limits(machine, findings);
  judge_rest(machine, findings);
  return findings;
}

std::string write_findings(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings)
    text += std::to_string(static_cast<int>(finding.level)) + " " + finding.text + "\n";
  return text;
}

std::vector<Finding> read_findings(const std::string& text) {
  std::vector<Finding> findings;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.size() > 2 && line[0] >= '0' && line[0] <= '2' && line[1] == ' ')
      findings.push_back({static_cast<Level>(line[0] - '0'), line.substr(2)});
  return findings;
}

}  // namespace ddp::ddprun
