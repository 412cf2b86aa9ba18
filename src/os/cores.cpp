// SPDX-License-Identifier: Apache-2.0
#include "os/cores.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace ddp::os {
namespace {

int32_t cgroup_cores() noexcept {
  std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "re");
  if (file == nullptr) return INT32_MAX;
  long long quota = 0;
  long long period = 0;
  const int fields = std::fscanf(file, "%lld %lld", &quota, &period);
  std::fclose(file);
  if (fields != 2 || quota <= 0 || period <= 0) return INT32_MAX;
  return static_cast<int32_t>(std::max<long long>(1, quota / period));
}

}  // namespace

int32_t usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  int32_t cores = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    cores = CPU_COUNT(&set);
  else
    cores = static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, std::min(cores, cgroup_cores()));
}

}  // namespace ddp::os
