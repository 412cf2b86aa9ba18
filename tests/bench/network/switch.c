/* SPDX-License-Identifier: Apache-2.0 */
/* A network for network.sh: every host is a network namespace whose eth0 is a TAP; this program is the switch between them.
 *
 *   switch [-r Mbit/s] [-d one-way delay in ms] [-b KiB of buffer a port] [-c counters] namespace ...
 *
 * A frame that arrives waits in the buffer of the port it leaves by (drop-tail), leaves at the rate of that port, and
 * reaches the host after the delay. The rate of the way up is the host's own queue (tbf, set by network.sh), so that sockets
 * feel back-pressure. It is used where the kernel has no netem. Segments are not cut (vnet_hdr, TSO): a frame is up to
 * gso_max_size, and its size on the wire is counted as that of its packets.
 * Prints "ready" when the interfaces are there, and runs until it is killed. `counters` is a file that ranks may map:
 * struct port_counters for each host. */
#define _GNU_SOURCE
#include "switch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FRAME = 66000, HEADER = sizeof(struct virtio_net_hdr), ETHERNET = 14, WIRE_HEADERS = 66, WIRE_PAYLOAD = 1448 };

typedef struct frame {
  struct frame *next;
  int64_t due_ns; /* when it reaches the host */
  int bytes;
  unsigned char data[];
} frame;

typedef struct port {
  int fd;
  int64_t free_ns; /* when what is in the buffer has left */
  frame *first, **last;
  struct port_counters *counters;
} port;

static port ports[MAX_PORTS];
static int port_count;
static double ns_per_byte;
static int64_t delay_ns, buffer_bytes;

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void fail(const char *what) {
  fprintf(stderr, "switch: %s: %s\n", what, strerror(errno));
  exit(1);
}

/* eth0 of a namespace, as a TAP that this process holds. */
static int make_tap(const char *namespace) {
  char path[256];
  snprintf(path, sizeof path, "/var/run/netns/%s", namespace);
  const int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), other = open(path, O_RDONLY | O_CLOEXEC);
  if (own < 0 || other < 0) fail(path);
  if (setns(other, CLONE_NEWNET) != 0) fail(path);
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
  strcpy(request.ifr_name, "eth0");
  int header = HEADER;
  if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0) fail("TUNSETIFF");
  if (ioctl(fd, TUNSETVNETHDRSZ, &header) != 0) fail("TUNSETVNETHDRSZ");
  if (ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0) fail("TUNSETOFFLOAD");
  if (setns(own, CLONE_NEWNET) != 0) fail("setns");
  close(own);
  close(other);
  return fd;
}

/* What the packets of a frame take on the wire, headers and the gaps between packets left out as for the host's own queue.
 */
static int64_t wire_bytes(const frame *f) {
  const int64_t payload = f->bytes - HEADER;
  if (payload <= WIRE_HEADERS + WIRE_PAYLOAD) return payload;
  const int64_t packets = (payload - WIRE_HEADERS + WIRE_PAYLOAD - 1) / WIRE_PAYLOAD;
  return payload + (packets - 1) * WIRE_HEADERS;
}

static void queue(port *to, const frame *f, int64_t now) {
  const int64_t bytes = wire_bytes(f);
  const int64_t begin = to->free_ns > now ? to->free_ns : now;
  if ((double)(begin - now) > (double)buffer_bytes * ns_per_byte) {
    ++to->counters->dropped;
    return;
  }
  frame *copy = malloc(sizeof *copy + (size_t)f->bytes);
  if (copy == NULL) fail("malloc");
  memcpy(copy, f, sizeof *copy + (size_t)f->bytes);
  to->free_ns = begin + (int64_t)((double)bytes * ns_per_byte);
  copy->due_ns = to->free_ns + delay_ns;
  copy->next = NULL;
  to->counters->received += bytes;
  *to->last = copy;
  to->last = &copy->next;
}

/* Hosts have the addresses 02:00:00:00:00:<number from 1 on>; everything else goes to all. */
static void forward(int from, const frame *f, int64_t now) {
  const unsigned char *mac = f->data + HEADER;
  const int to = mac[0] == 2 ? mac[5] - 1 : -1;
  ports[from].counters->sent += wire_bytes(f);
  for (int i = 0; i < port_count; ++i)
    if (i != from && (i == to || to < 0 || to >= port_count)) queue(&ports[i], f, now);
}

static void read_port(int from, frame *f) {
  for (int i = 0; i < 64; ++i) {
    const ssize_t got = read(ports[from].fd, f->data, MAX_FRAME);
    if (got < HEADER + ETHERNET) return;
    f->bytes = (int)got;
    forward(from, f, now_ns());
  }
}

/* Hands over what is due. Returns when the next frame is due, or -1. */
static int64_t deliver(port *to, int64_t now) {
  while (to->first != NULL && to->first->due_ns <= now) {
    frame *f = to->first;
    if (write(to->fd, f->data, (size_t)f->bytes) < 0) ++to->counters->dropped;
    to->first = f->next;
    if (to->first == NULL) to->last = &to->first;
    free(f);
  }
  return to->first != NULL ? to->first->due_ns : -1;
}

static void set_timer(int timer, int64_t due) {
  struct itimerspec spec = {0};
  if (due >= 0) {
    spec.it_value.tv_sec = due / 1000000000;
    spec.it_value.tv_nsec = due % 1000000000;
  }
  timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void run(void) {
  const int poll = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  frame *scratch = malloc(sizeof *scratch + MAX_FRAME);
  if (poll < 0 || timer < 0 || scratch == NULL) fail("epoll");
  for (int i = 0; i <= port_count; ++i) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
    if (epoll_ctl(poll, EPOLL_CTL_ADD, i < port_count ? ports[i].fd : timer, &event) != 0) fail("epoll_ctl");
  }
  for (;;) {
    struct epoll_event events[MAX_PORTS + 1];
    const int ready = epoll_wait(poll, events, MAX_PORTS + 1, -1);
    for (int e = 0; e < ready; ++e)
      if ((int)events[e].data.u32 < port_count) read_port((int)events[e].data.u32, scratch);
    uint64_t ticks = 0;
    if (read(timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN) fail("timer");
    int64_t next = -1;
    for (int i = 0; i < port_count; ++i) {
      const int64_t due = deliver(&ports[i], now_ns());
      if (due >= 0 && (next < 0 || due < next)) next = due;
    }
    set_timer(timer, next);
  }
}

int main(int argc, char **argv) {
  double mbit = 500, delay_ms = 1, buffer_kib = 1024;
  const char *path = NULL;
  for (int option; (option = getopt(argc, argv, "r:d:b:c:")) != -1;) switch (option) {
      case 'r': mbit = atof(optarg); break;
      case 'd': delay_ms = atof(optarg); break;
      case 'b': buffer_kib = atof(optarg); break;
      case 'c': path = optarg; break;
      default: return 2;
    }
  port_count = argc - optind;
  if (port_count < 2 || port_count > MAX_PORTS || mbit <= 0) return fprintf(stderr, "switch: 2 to 64 namespaces\n"), 2;
  ns_per_byte = 8e3 / mbit;
  delay_ns = (int64_t)(delay_ms * 1e6);
  buffer_bytes = (int64_t)(buffer_kib * 1024);
  const int fd = path != NULL ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (path != NULL && (fd < 0 || ftruncate(fd, COUNTERS_BYTES) != 0)) fail(path);
  struct port_counters *counters =
      mmap(NULL, COUNTERS_BYTES, PROT_READ | PROT_WRITE, fd >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, fd, 0);
  if (counters == MAP_FAILED) fail("mmap");
  for (int i = 0; i < port_count; ++i) {
    ports[i] = (port){.fd = make_tap(argv[optind + i]), .counters = &counters[i]};
    ports[i].last = &ports[i].first;
  }
  puts("ready");
  fflush(stdout);
  run();
}
