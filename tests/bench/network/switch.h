/* SPDX-License-Identifier: Apache-2.0 */
/* What the switch counts for each host, in the file that it is given. */
#ifndef DDP_TESTS_BENCH_NETWORK_SWITCH_H
#define DDP_TESTS_BENCH_NETWORK_SWITCH_H

#include <stdint.h>

enum { MAX_PORTS = 64, COUNTERS_BYTES = 4096 };

struct port_counters {
  volatile int64_t sent;     /* bytes of this host on the wire */
  volatile int64_t received; /* bytes that the switch passed on to it */
  volatile int64_t dropped;  /* frames that found the port's buffer full */
};

#endif
