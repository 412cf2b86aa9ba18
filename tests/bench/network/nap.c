/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into MPI programs: they poll without end, and here several share a core with each other and with the switch. A
 * poll that finds nothing sleeps 20 us. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

static void nap(void) {
  const struct timespec time = {0, 20000};
  nanosleep(&time, NULL);
}

int sched_yield(void) {
  nap();
  return 0;
}

int epoll_wait(int poll, struct epoll_event *events, int most, int timeout) {
  static int (*real)(int, struct epoll_event *, int, int);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "epoll_wait");
  const int ready = real(poll, events, most, timeout);
  if (ready == 0 && timeout == 0) nap();
  return ready;
}

int poll(struct pollfd *fds, nfds_t count, int timeout) {
  static int (*real)(struct pollfd *, nfds_t, int);
  if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "poll");
  const int ready = real(fds, count, timeout);
  if (ready == 0 && timeout == 0) nap();
  return ready;
}
