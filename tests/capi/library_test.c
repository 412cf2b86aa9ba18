/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/library.h, ddp/types.h, and the struct_size rule that all _init functions share. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/check.h"

check_case(version_is_the_headers) {
  check_int(ddp_version(), DDP_VERSION);
  check_text(ddp_version_string(), DDP_VERSION_STRING);
  check_int(ddp_version() / 1000000, atoi(ddp_version_string()));
}

check_case(build_info_is_one_line_with_the_version) {
  const char *text = ddp_build_info();
  check_text(text, DDP_VERSION_STRING);
  check_true(strchr(text, '\n') == NULL);
  check_true(text == ddp_build_info());
}

check_case(build_info_names_compiler_build_type_and_modules) {
  const char *text = ddp_build_info(), *folders = getenv("DDP_MODULE_PATH");
  char file[4096], found[4200];
#ifdef __clang__
  check_text(text, "Clang " __clang_version__);
#else
  check_text(text, "GCC " __VERSION__);
#endif
  check_true(strstr(text, ", Debug") != NULL || strstr(text, ", Rel") != NULL || strstr(text, ", no build type") != NULL);
  check_text(text, "kernels: ");
  check_text(text, "modules: Gloo ");
  check_text(text, ", CUDA ");
  if (folders == NULL || strchr(folders, ':') != NULL) return;
  const char *const modules[][2] = {{"Gloo", "libddp_gloo.so"}, {"CUDA", "libddp_cuda.so"}};
  for (int i = 0; i < 2; i++) {
    snprintf(file, sizeof file, "%s/%s", folders, modules[i][1]);
    if (access(file, R_OK) == 0) {
      snprintf(found, sizeof found, "%s found at %s", modules[i][0], file);
    } else {
      snprintf(found, sizeof found, "%s not built", modules[i][0]);
    }
    check_text(text, found);
  }
}

check_case(status_names_are_the_enumerators) {
  check_int(strcmp(ddp_status_name(DDP_OK), "DDP_OK"), 0);
  check_int(strcmp(ddp_status_name(DDP_ERROR_INVALID_ARGUMENT), "DDP_ERROR_INVALID_ARGUMENT"), 0);
  check_int(strcmp(ddp_status_name(DDP_ERROR_TIMED_OUT), "DDP_ERROR_TIMED_OUT"), 0);
  check_int(strcmp(ddp_status_name(DDP_ERROR_INTERNAL), "DDP_ERROR_INTERNAL"), 0);
  for (int code = -3; code < 40; code++) check_true(ddp_status_name((ddp_status)code) != NULL);
}

static void *text_of_a_fresh_thread(void *argument) {
  (void)argument;
  check_int(strlen(ddp_last_error()), 0);
  check_int(ddp_copy_last_error(NULL, 0), 1);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_group_barrier(NULL));
  return NULL;
}

check_case(error_text_belongs_to_its_thread) {
  pthread_t thread;
  (void)ddp_set_log((ddp_log_level)99, NULL, NULL);
  check_text(ddp_last_error(), "ddp_set_log");
  assert_int_equal(pthread_create(&thread, NULL, text_of_a_fresh_thread, NULL), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  check_text(ddp_last_error(), "ddp_set_log");
}

check_case(copied_text_is_cut_and_terminated) {
  char buffer[8], whole[4096];
  (void)ddp_set_log((ddp_log_level)99, NULL, NULL);
  const int64_t needed = (int64_t)strlen(ddp_last_error()) + 1;
  memset(buffer, 'x', sizeof buffer);
  check_int(ddp_copy_last_error(buffer, 5), needed);
  check_int(strlen(buffer), 4);
  check_int(strncmp(buffer, ddp_last_error(), 4), 0);
  check_int(buffer[5], 'x');
  check_int(ddp_copy_last_error(whole, sizeof whole), needed);
  check_int(strcmp(whole, ddp_last_error()), 0);
  check_int(ddp_copy_last_error(NULL, 0), needed);
  check_int(ddp_copy_last_error(NULL, 10), needed);
  check_int(ddp_copy_last_error(buffer, 0), needed);
  check_int(ddp_copy_last_error(buffer, -1), needed);
  check_int(strlen(buffer), 4);
}

static void count_message(void *user_data, ddp_log_level level, const char *text) {
  (void)level;
  (void)text;
  ++*(int *)user_data;
}

check_case(log_goes_where_it_was_sent) {
  int messages = 0;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_set_log((ddp_log_level)-1, NULL, NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_set_log((ddp_log_level)5, count_message, &messages));
  check_ok(ddp_set_log(DDP_LOG_OFF, count_message, &messages));
  check_ok(ddp_set_log(DDP_LOG_WARNING, NULL, NULL));
  check_int(messages, 0);
}

check_case(tensor_init_describes_a_dense_tensor) {
  float data[6];
  const int64_t shape[] = {2, 3};
  ddp_tensor tensor;
  memset(&tensor, 0xff, sizeof tensor);
  check_ok(ddp_tensor_init(&tensor, data, DDP_F32, 2, shape));
  check_true(tensor.data == data);
  check_int(tensor.dtype, DDP_F32);
  check_int(tensor.device, DDP_CPU);
  check_int(tensor.device_index, 0);
  check_int(tensor.ndim, 2);
  check_int(tensor.shape[0], 2);
  check_int(tensor.shape[1], 3);
  check_ok(ddp_tensor_init(&tensor, data, DDP_F32, 0, NULL));
  check_int(tensor.ndim, 0);
  const int64_t none[] = {0};
  check_ok(ddp_tensor_init(&tensor, NULL, DDP_F32, 1, none));
}

check_case(tensor_init_refuses_what_is_no_tensor) {
  float data[6];
  const int64_t shape[] = {2, 3}, negative[] = {2, -3}, huge[] = {INT64_MAX, 16};
  const int64_t many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  ddp_tensor tensor, before;
  memset(&tensor, 0xa5, sizeof tensor);
  before = tensor;
  ddp_status status = ddp_tensor_init(NULL, data, DDP_F32, 2, shape);
  check_int(status, DDP_ERROR_INVALID_ARGUMENT);
  const struct {
    void *data;
    int32_t dtype, ndim;
    const int64_t *shape;
  } wrong[] = {{data, 0, 2, shape},          {data, 10, 2, shape},     {data, -1, 2, shape},
               {data, DDP_F32, -1, shape},   {data, DDP_F32, 9, many}, {data, DDP_F32, 2, NULL},
               {data, DDP_F32, 2, negative}, {data, DDP_F32, 2, huge}, {NULL, DDP_F32, 2, shape}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    /* not check_error: its sentinel is this very function */
    status = ddp_tensor_init(&tensor, wrong[i].data, (ddp_dtype)wrong[i].dtype, wrong[i].ndim, wrong[i].shape);
    check_int(status, DDP_ERROR_INVALID_ARGUMENT);
    check_true(strlen(ddp_last_error()) > 12);
    check_int(memcmp(&tensor, &before, sizeof tensor), 0);
  }
}

/* The rule of struct_size, for one _init function: NULL, never initialised, absurd, an older caller, a newer caller. */
typedef ddp_status (*init_fn)(void *options, int64_t struct_size);

static void check_init(init_fn init, int64_t size) {
  unsigned char memory[512], small[512];
  int64_t written;
  check_error(DDP_ERROR_INVALID_ARGUMENT, init(NULL, size));
  check_error(DDP_ERROR_INVALID_ARGUMENT, init(memory, 0));
  check_error(DDP_ERROR_INVALID_ARGUMENT, init(memory, -1));
  check_error(DDP_ERROR_INVALID_ARGUMENT, init(memory, 7));
  check_error(DDP_ERROR_INVALID_ARGUMENT, init(memory, INT64_MAX));

  memset(memory, 0xee, sizeof memory);
  check_ok(init(memory, size));
  check_int(memory[size], 0xee);
  memcpy(&written, memory, sizeof written);
  check_int(written, size);

  memset(small, 0xee, sizeof small);
  check_ok(init(small, 16)); /* an older caller has fewer members: the same values, nothing behind them */
  memcpy(&written, small, sizeof written);
  check_int(written, 16);
  check_int(memcmp(small + 8, memory + 8, 8), 0);
  check_int(small[16], 0xee);

  memset(memory, 0xee, sizeof memory);
  check_ok(init(memory, size + 64)); /* a newer caller: what this library does not know is zero */
  for (int64_t i = size; i < size + 64; i++) check_int(memory[i], 0);
  check_int(memory[size + 64], 0xee);
}

static ddp_status init_group(void *o, int64_t size) { return ddp_group_options_init(o, size); }
static ddp_status init_model(void *o, int64_t size) { return ddp_model_options_init(o, size); }
static ddp_status init_optimizer(void *o, int64_t size) { return ddp_optimizer_options_init(o, size); }
static ddp_status init_custom(void *o, int64_t size) { return ddp_custom_options_init(o, size); }
static ddp_status init_sgd(void *o, int64_t size) { return ddp_sgd_options_init(o, size); }
static ddp_status init_adam(void *o, int64_t size) { return ddp_adam_options_init(o, size); }
static ddp_status init_state(void *o, int64_t size) { return ddp_state_init(o, size); }
static ddp_status init_load(void *o, int64_t size) { return ddp_load_options_init(o, size); }
static ddp_status init_sampler(void *o, int64_t size) { return ddp_sampler_init(o, size); }

check_case(every_init_keeps_the_struct_size_rule) {
  check_init(init_group, sizeof(ddp_group_options));
  check_init(init_model, sizeof(ddp_model_options));
  check_init(init_optimizer, sizeof(ddp_optimizer_options));
  check_init(init_custom, sizeof(ddp_custom_options));
  check_init(init_sgd, sizeof(ddp_sgd_options));
  check_init(init_adam, sizeof(ddp_adam_options));
  check_init(init_state, sizeof(ddp_state));
  check_init(init_load, sizeof(ddp_load_options));
  check_init(init_sampler, sizeof(ddp_sampler));
}
