// SPDX-License-Identifier: Apache-2.0
// The affinity mask counts.
#include "os/cores.hpp"

#include <sched.h>

#include "support/check.hpp"

ddp_case(cores_are_those_of_the_affinity_mask) {
  expect(os::usable_cores() >= 1 && os::usable_cores() <= sysconf(_SC_NPROCESSORS_CONF), "a sane number");
  cpu_set_t before;
  expect(sched_getaffinity(0, sizeof before, &before) == 0, "the mask");
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  expect(sched_setaffinity(0, sizeof one, &one) == 0, "one core");
  const int32_t cores = os::usable_cores();
  sched_setaffinity(0, sizeof before, &before);
  expect_equal(cores, 1, "cores");
}
