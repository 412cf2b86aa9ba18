/* SPDX-License-Identifier: Apache-2.0 */
/* The file libddp_cuda.so with the fake GPU in it, as a C program sees it that links it: the table and the functions that
 * control it. And libddp opens this very copy. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/check.h"
#include "support/fake_gpu/fake_gpu_control.h"

static const ddp_gpu_table *gpu(void) { return ddp_gpu_query(DDP_GPU_VERSION); }

check_case(another_version_is_refused) {
  assert_true(ddp_gpu_query(DDP_GPU_VERSION + 1) == NULL);
  assert_true(gpu() != NULL);
}

check_case(memory_streams_and_graphs_work_from_c) {
  ddp_fake_gpu_reset(2, 7);
  void *memory = NULL, *stream = NULL;
  unsigned char bytes[4] = {0};
  assert_true(gpu()->alloc(&memory, 4) == 0);
  assert_true(gpu()->stream_create(&stream, 1) == 0);
  assert_true(ddp_fake_gpu_begin_capture(stream) == 1);
  assert_true(gpu()->fill(memory, 9, 4, stream) == 0);
  void *const graph = ddp_fake_gpu_end_capture(stream);
  assert_true(graph != NULL);
  ddp_fake_gpu_launch_graph(graph, stream);
  ddp_fake_gpu_destroy_graph(graph);
  assert_true(ddp_fake_gpu_wait_idle(10000) == 1);
  assert_true(ddp_fake_gpu_peek(bytes, memory, 4) == 1);
  assert_true(bytes[3] == 9);
  assert_true(ddp_fake_gpu_poke(memory, bytes, 5) == 0);
  assert_true(ddp_fake_gpu_live() == 2);
  assert_true(gpu()->synchronize() == 0); /* a free may return without waiting */
  assert_true(gpu()->stream_destroy(stream) == 0);
  assert_true(gpu()->free(memory) == 0);
  assert_true(ddp_fake_gpu_live() == 0);
}

check_case(violations_logs_and_faults_can_be_read_and_set) {
  char text[200];
  int32_t count = 0;
  ddp_fake_gpu_reset(2, 0);
  assert_true(gpu()->fill(text, 0, 4, NULL) == 0);
  assert_true(ddp_fake_gpu_violations() == 1);
  ddp_fake_gpu_violation(0, text, sizeof text);
  assert_true(strstr(text, "is no device address") != NULL);
  ddp_fake_gpu_clear_violations();
  ddp_fake_gpu_violation(0, text, sizeof text);
  assert_true(text[0] == '\0');
  ddp_fake_gpu_clear_log();
  ddp_fake_gpu_inject("device_count", 1, 1, DDP_GPU_LOST, -1);
  assert_true(gpu()->error_kind(gpu()->device_count(&count)) == DDP_GPU_LOST);
  assert_true(gpu()->device_count(&count) == 0 && count == 2);
  assert_true(ddp_fake_gpu_calls("device_count") == 2);
  ddp_fake_gpu_log(1, text, sizeof text);
  assert_true(strcmp(text, "[0] device_count") == 0);
}

/* What a child ends with that leaves a violation behind. */
static int status_of_a_sinner(const char *strict) {
  const pid_t child = fork();
  if (child == 0) {
    char host[4];
    setenv("DDP_FAKE_GPU_STRICT", strict, 1);
    gpu()->fill(host, 0, 4, NULL);
    exit(0);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

check_case(a_program_that_leaves_violations_fails_where_that_is_asked_for) {
  ddp_fake_gpu_reset(1, 0);
  assert_int_equal(status_of_a_sinner("1"), 86);
  assert_int_equal(status_of_a_sinner(""), 0);
}

/* Makes a context, after which no fork may use the fake GPU. */
check_case(libddp_opens_this_copy) {
  ddp_fake_gpu_reset(1, 0);
  ddp_group *group = NULL;
  check_defaults(group_options, options);
  options.rank = 0;
  options.world_size = 1;
  options.device_index = 0;
  check_ok(ddp_group_create("local://fake-module", &options, &group));
  void *memory = NULL;
  float one = 1;
  assert_true(gpu()->alloc(&memory, 4) == 0);
  assert_true(ddp_fake_gpu_poke(memory, &one, 4) == 1);
  ddp_tensor tensor = {memory, DDP_F32, DDP_CUDA, 0, 1, {1}};
  ddp_fake_gpu_clear_log();
  check_ok(ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL));
  char first[100];
  ddp_fake_gpu_log(0, first, sizeof first);
  assert_true(first[0] == '[');
  ddp_group_destroy(group);
  assert_true(gpu()->free(memory) == 0);
  assert_true(ddp_fake_gpu_live() == 0);
}
