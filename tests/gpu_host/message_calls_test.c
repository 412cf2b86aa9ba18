/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of ddp/messages.h and ddp/request.h with tensors on GPUs, as a C program makes them; and a fork meanwhile. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddp/ddp.h"
#include "support/check.h"
#include "support/fake_gpu/fake_gpu_control.h"
#include "support/ranks.h"

enum { kRanks = 2 };

static const ddp_gpu_table *gpu(void) { return ddp_gpu_query(DDP_GPU_VERSION); }

/* What one rank has: four numbers that it gives, and four that it takes. */
typedef struct place {
  ddp_group *group;
  int32_t me, other;
  void *stream, *source, *given, *taken;
} place;

static ddp_tensor part(const place *of, void *memory, int64_t count) {
  ddp_tensor tensor = vector_of(memory, DDP_I32, count);
  tensor.device = DDP_CUDA;
  tensor.device_index = of->me;
  return tensor;
}

/* 10 * rank, 10 * rank + 1, ... in the order of the program's stream */
static void give(const place *of) {
  int32_t numbers[4];
  for (int32_t at = 0; at < 4; at++) numbers[at] = 10 * of->me + at;
  check_true(ddp_fake_gpu_poke(of->source, numbers, sizeof numbers) == 1); /* the same each time */
  check_true(gpu()->copy(of->given, of->source, sizeof numbers, of->stream) == 0);
  check_true(gpu()->fill(of->taken, 0, sizeof numbers, of->stream) == 0);
}

static void check_taken(const place *of, int32_t first, int32_t second) {
  int32_t got[4];
  check_true(gpu()->stream_synchronize(of->stream) == 0);
  check_true(ddp_fake_gpu_peek(got, of->taken, sizeof got) == 1);
  check_int(got[0], first);
  check_int(got[1], second);
}

static void end(ddp_request *request) {
  int32_t done = 0;
  check_ok(ddp_request_wait(request, -1, &done));
  check_int(done, 1);
  ddp_request_destroy(request);
}

static place open_place(rank *self) {
  place made = {NULL, self->index, 1 - self->index, NULL, NULL, NULL, NULL};
  ddp_group_options options;
  check_true(gpu()->set_device(self->index) == 0);
  check_ok(ddp_group_options_init(&options, sizeof options));
  options.rank = options.device_index = self->index;
  options.world_size = self->size;
  options.timeout_ms = options.rendezvous_timeout_ms = 20000;
  check_ok(ddp_group_create("local://message-calls", &options, &made.group));
  check_true(gpu()->stream_create(&made.stream, 0) == 0);
  check_true(gpu()->alloc(&made.source, 16) == 0);
  check_true(gpu()->alloc(&made.given, 16) == 0 && gpu()->alloc(&made.taken, 16) == 0);
  return made;
}

static void close_place(const place *of) {
  check_ok(ddp_group_barrier(of->group));
  check_true(gpu()->stream_synchronize(of->stream) == 0);
  ddp_group_destroy(of->group);
  check_true(gpu()->stream_destroy(of->stream) == 0);
  check_true(gpu()->free(of->source) == 0 && gpu()->free(of->given) == 0 && gpu()->free(of->taken) == 0);
}

static void make_all_calls(rank *self) {
  const place own = open_place(self), *const p = &own;
  const ddp_tensor one = part(p, p->given, 1), two = part(p, p->given, 2), got = part(p, p->taken, 2),
                   single = part(p, p->taken, 1);
  const int64_t counts[2] = {1, 1};
  const int root = p->me == 0;
  int32_t source = -1;
  ddp_request *sent = NULL;
  give(p), check_ok(ddp_group_post_send(p->group, &two, p->other, 1, &sent, p->stream));
  check_ok(ddp_group_receive(p->group, &got, DDP_ANY_SOURCE, 1, &source, p->stream));
  end(sent), check_int(source, p->other), check_taken(p, 10 * p->other, 10 * p->other + 1);
  if (root) check_ok(ddp_group_send(p->group, &two, 1, 2, p->stream));
  if (!root) check_ok(ddp_group_receive(p->group, &got, 0, 2, NULL, p->stream)), check_taken(p, 0, 1);
  give(p), check_ok(ddp_group_gather(p->group, &one, root ? &got : NULL, 0, p->stream));
  if (root) check_taken(p, 0, 10);
  give(p), check_ok(ddp_group_scatter(p->group, root ? &two : NULL, &single, 0, p->stream)), check_taken(p, p->me, 0);
  give(p), check_ok(ddp_group_all_to_all(p->group, &two, &got, NULL, NULL, p->stream)), check_taken(p, p->me, 10 + p->me);
  give(p), check_ok(ddp_group_all_gather_counts(p->group, &one, &got, counts, p->stream)), check_taken(p, 0, 10);
  close_place(p);
}

static void post_all_calls(rank *self) {
  const place own = open_place(self), *const p = &own;
  const ddp_tensor one = part(p, p->given, 1), two = part(p, p->given, 2), got = part(p, p->taken, 2),
                   single = part(p, p->taken, 1);
  const int64_t counts[2] = {1, 1};
  const int root = p->me == 0;
  ddp_request *request = NULL, *sent = NULL;
  give(p);
  check_ok(ddp_group_post_receive(p->group, &got, p->other, 1, &request, p->stream));
  check_ok(ddp_group_post_send(p->group, &two, p->other, 1, &sent, p->stream));
  end(request), end(sent), check_taken(p, 10 * p->other, 10 * p->other + 1);
  give(p), check_ok(ddp_group_post_gather(p->group, &one, root ? &got : NULL, 0, &request, p->stream)), end(request);
  if (root) check_taken(p, 0, 10);
  give(p), check_ok(ddp_group_post_scatter(p->group, root ? &two : NULL, &single, 0, &request, p->stream)), end(request);
  check_taken(p, p->me, 0);
  give(p), check_ok(ddp_group_post_all_to_all(p->group, &two, &got, NULL, NULL, &request, p->stream)), end(request);
  check_taken(p, p->me, 10 + p->me);
  give(p), check_ok(ddp_group_post_all_gather_counts(p->group, &one, &got, counts, &request, p->stream)), end(request);
  check_taken(p, 0, 10);
  close_place(p);
}

/* A child has not the other threads of its parent, whose stacks lead to memory: it has no leaks to look for. */
static int is_child;
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_child; }

/* The child of a rank with requests that are open on its GPU; it never returns. */
static void be_a_child(ddp_request *request, const place *of) {
  int32_t done = 0;
  is_child = 1;
  if (ddp_request_test(request, &done) == DDP_OK) _exit(3);
  ddp_request_destroy(request);
  ddp_group_destroy(of->group);
  exit(0); /* a violation makes that 86 */
}

static void fork_in_between(rank *self) {
  const place own = open_place(self), *const p = &own;
  const ddp_tensor two = part(p, p->given, 2), got = part(p, p->taken, 2);
  ddp_request *request = NULL, *sent = NULL;
  give(p);
  check_ok(ddp_group_post_receive(p->group, &got, p->other, 1, &request, p->stream));
  if (self->index == 0) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) be_a_child(request, p);
    check_true(waitpid(child, &status, 0) == child);
    check_int(status, 0);
  }
  check_ok(ddp_group_post_send(p->group, &two, p->other, 1, &sent, p->stream));
  end(request), end(sent), check_taken(p, 10 * p->other, 10 * p->other + 1);
  close_place(p);
}

static void wrong_tensors(rank *self) {
  const place own = open_place(self), *const p = &own;
  ddp_tensor elsewhere = part(p, p->given, 2), in_host = elsewhere;
  int32_t numbers[2] = {1, 2};
  ddp_request *request = NULL;
  elsewhere.device_index = p->other;
  in_host.data = numbers;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_send(p->group, &elsewhere, p->other, 1, p->stream),
                   "but this rank works on GPU");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_receive(p->group, &in_host, p->other, 1, NULL, p->stream),
                   "is no GPU memory");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT,
                   ddp_group_post_receive(p->group, &elsewhere, p->other, 1, &request, p->stream),
                   "but this rank works on GPU");
  in_host = elsewhere;
  in_host.device = DDP_CPU;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_group_send(p->group, &in_host, p->other, 1, NULL),
                   "was given as host memory");
  close_place(p);
}

static void run(void (*body)(rank *)) {
  char text[200];
  ddp_fake_gpu_reset(kRanks, 3);
  run_ranks(kRanks, "local://host", body, NULL);
  ddp_fake_gpu_violation(0, text, sizeof text);
  assert_string_equal(text, "");
  assert_int_equal(ddp_fake_gpu_live(), 0);
}

check_case(each_call_takes_tensors_on_a_gpu) { run(make_all_calls); }
check_case(each_posted_call_does_too) { run(post_all_calls); }
check_case(wrong_tensors_are_named) { run(wrong_tensors); }
check_case(a_fork_touches_no_gpu) { run(fork_in_between); }
