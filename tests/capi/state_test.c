/* SPDX-License-Identifier: Apache-2.0 */
/* ddp/state.h: a run that was saved and loaded continues with the same bits as one that was not interrupted, in whatever
 * order the objects were made; arguments that can not be right; texts. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ddp/latest.h"
#include "support/ranks.h"

#define WIDTH 5

/* What a program has. */
typedef struct program {
  float weight[WIDTH], grad[WIDTH];
  ddp_model *model;
  ddp_optimizer *optimizer;
  ddp_ema *ema;
  ddp_state state;
} program;

static char folder[] = "/tmp/ddp-state-XXXXXX";

static const char *path_of(const char *name) {
  static __thread char path[200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void make_model(program *p, ddp_group *group) {
  const int64_t width = WIDTH;
  ddp_tensor value, grad;
  memset(p, 0, sizeof *p);
  for (int i = 0; i < WIDTH; i++) p->weight[i] = (float)i;
  check_ok(ddp_model_create(group, NULL, &p->model));
  check_ok(ddp_tensor_init(&value, p->weight, DDP_F32, 1, &width));
  check_ok(ddp_tensor_init(&grad, p->grad, DDP_F32, 1, &width));
  check_ok(ddp_model_add_parameter(p->model, "layer.weight", &value, &grad, NULL));
  check_ok(ddp_state_init(&p->state, sizeof p->state));
  p->state.model = p->model;
}

static void make_optimizer(program *p) {
  const double decays[2] = {0.5, 0.9};
  check_ok(ddp_optimizer_create_adam(p->model, NULL, NULL, &p->optimizer));
  check_ok(ddp_ema_create(p->model, decays, 2, &p->ema));
  p->state.optimizer = p->optimizer;
  p->state.ema = p->ema;
}

static void take_steps(program *p, int from, int to) {
  for (int step = from; step < to; step++) {
    for (int i = 0; i < WIDTH; i++) p->grad[i] = (float)(step * 3 + i) / 7.0f - 1.0f;
    check_ok(ddp_model_begin_backward(p->model, DDP_PASS_REDUCE));
    check_ok(ddp_model_mark_ready(p->model, 0, NULL));
    check_ok(ddp_model_end_backward(p->model, NULL));
    check_ok(ddp_optimizer_step(p->optimizer, NULL));
    check_ok(ddp_ema_update(p->ema, NULL));
  }
}

static void release(program *p) {
  ddp_ema_destroy(p->ema);
  ddp_optimizer_destroy(p->optimizer);
  ddp_model_destroy(p->model);
}

/* Parameters and both averages after ten steps. */
static void finish(program *p, float result[3 * WIDTH]) {
  memcpy(result, p->weight, sizeof p->weight);
  for (int32_t which = 0; which < 2; which++) {
    check_ok(ddp_ema_swap(p->ema, which, NULL));
    memcpy(result + (which + 1) * WIDTH, p->weight, sizeof p->weight);
    check_ok(ddp_ema_swap(p->ema, which, NULL));
  }
}

static void resume_in_every_order(rank *self) {
  float wanted[3 * WIDTH], got[3 * WIDTH];
  program whole;
  make_model(&whole, self->group);
  make_optimizer(&whole);
  check_ok(ddp_model_commit(whole.model, NULL));
  take_steps(&whole, 0, 4);
  check_ok(ddp_optimizer_set_rate(whole.optimizer, 0.003));
  whole.state.epoch = 2;
  whole.state.step = 4;
  check_ok(ddp_model_set_metadata(whole.model, "note", self->index == 0 ? "best so far" : "not saved"));
  check_ok(ddp_state_save_file(&whole.state, path_of("resume")));
  take_steps(&whole, 4, 10);
  finish(&whole, wanted);
  release(&whole);
  for (int order = 0; order < 3; order++) { /* load before, between and after */
    program p;
    const char *note = NULL;
    double rate = 0;
    int64_t steps = 0;
    make_model(&p, self->group);
    if (order == 2) check_ok(ddp_model_commit(p.model, NULL));
    make_optimizer(&p);
    if (order == 1) check_ok(ddp_model_commit(p.model, NULL));
    ddp_load_report report = {.struct_size = sizeof report};
    check_ok(ddp_state_load_file(&p.state, path_of("resume"), NULL, &report));
    if (order == 0) check_ok(ddp_model_commit(p.model, NULL));
    check_int(report.epoch, 2);
    check_int(report.step, 4);
    check_int(report.missing, 0);
    check_int(report.unexpected, 0);
    check_int(p.state.epoch, 0);
    check_ok(ddp_model_get_metadata(p.model, "note", &note));
    check_text(note, "best so far");
    check_ok(ddp_optimizer_get_rate(p.optimizer, &rate));
    check_number(rate, 0.003);
    check_ok(ddp_optimizer_get_step_count(p.optimizer, &steps));
    check_int(steps, 4);
    take_steps(&p, 4, 10);
    finish(&p, got);
    check_int(memcmp(got, wanted, sizeof wanted), 0);
    release(&p);
  }
  check_ok(ddp_group_barrier(self->group)); /* the first rank that leaves breaks the group for the steps of the others */
}

check_case(a_resumed_run_has_the_bits_of_one_that_was_not_interrupted) {
  for (int32_t size = 1; size <= 3; size++) {
    char place[40];
    snprintf(place, sizeof place, "local://resume-%d", (int)size);
    run_ranks(size, place, resume_in_every_order, NULL);
  }
}

/* A folder of checkpoints, as a program uses it from its first start on. */
static void use_latest(rank *self) {
  program p;
  char path[200], text[300];
  make_model(&p, self->group);
  ddp_load_report report = {.struct_size = sizeof report};
  check_true(ddp_model_get_loaded_file(p.model) == NULL);
  check_error_text(DDP_ERROR_NO_CHECKPOINT, ddp_state_load_latest(&p.state, path_of("latest"), NULL, &report),
                   "has no checkpoint");
  check_error_text(DDP_ERROR_IO, ddp_state_load_latest(&p.state, path_of("none"), NULL, &report), "does not exist");
  check_error_text(DDP_ERROR_IO, ddp_state_save_latest(&p.state, path_of("none"), 1), "does not exist");
  for (int64_t step = 1; step <= 4; step++) {
    p.weight[0] = (float)step;
    p.state.step = step;
    check_ok(ddp_state_save_latest(&p.state, self->index == 0 ? path_of("latest") : NULL, self->index == 0 ? 2 : -5));
  }
  snprintf(path, sizeof path, "%s/step-000000000004.safetensors", path_of("latest"));
  if (self->index == 0) check_int(truncate(path, 99), 0);
  check_ok(ddp_group_barrier(self->group));
  check_ok(ddp_state_load_latest(&p.state, self->index == 0 ? path_of("latest") : NULL, NULL, &report));
  check_int(report.step, 3);
  check_int(report.skipped, 1);
  check_number(p.weight[0], 3);
  snprintf(text, sizeof text, "checkpoint \"%s\": ", path);
  check_true(strncmp(ddp_model_get_skipped(p.model, 0), text, strlen(text)) == 0);
  check_true(ddp_model_get_skipped(p.model, 1) == NULL && ddp_model_get_skipped(p.model, -1) == NULL);
  path[strlen(path) - strlen("4.safetensors")] = '3';
  check_text(ddp_model_get_loaded_file(p.model), path);
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_load_latest(&p.state, NULL, NULL, NULL),
                   "folder is NULL on rank 0");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_latest(&p.state, NULL, 1), "folder is NULL on rank 0");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_latest(&p.state, path_of("latest"), -1), "keep is -1");
  p.state.step = -1;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_latest(&p.state, path_of("latest"), 1), "step -1");
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_latest(NULL, path_of("latest"), 1));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_state_load_latest(NULL, path_of("latest"), NULL, NULL));
  check_int(p.weight[0] == 3, 1);
  check_ok(ddp_group_barrier(self->group));
  release(&p);
}

check_case(a_folder_gives_its_newest_valid_checkpoint) {
  check_int(mkdir(path_of("latest"), 0700), 0);
  run_ranks(2, "local://latest", use_latest, NULL);
  for (int step = 3; step <= 4; step++) {
    char path[200];
    snprintf(path, sizeof path, "%s/step-00000000000%d.safetensors", path_of("latest"), step);
    check_int(unlink(path), 0);
  }
  check_int(unlink(path_of("latest/.ddp-folder.lock")), 0);
  check_int(rmdir(path_of("latest")), 0);
}

static void wrong_arguments(rank *self) {
  program p, other;
  ddp_state shortened;
  make_model(&p, self->group);
  make_optimizer(&p);
  make_model(&other, self->group);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_state_init(NULL, sizeof(ddp_state)));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_state_init(&shortened, 0));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(NULL, path_of("a")));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_state_load_file(NULL, path_of("a"), NULL, NULL));
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(&p.state, NULL), "path is NULL");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_load_file(&p.state, NULL, NULL, NULL), "path is NULL");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save(&p.state, NULL, NULL), "fn is NULL");
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_load(&p.state, NULL, NULL, NULL, NULL), "fn is NULL");
  other.state.optimizer = p.optimizer;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(&other.state, path_of("a")), "belongs to another model");
  other.state.optimizer = NULL;
  other.state.ema = p.ema;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(&other.state, path_of("a")), "belong to another model");
  other.state.ema = (ddp_ema *)p.optimizer;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(&other.state, path_of("a")));
  other.state.model = NULL;
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(&other.state, path_of("a")));
  check_error(DDP_ERROR_IO, ddp_state_load_file(&p.state, path_of("missing"), NULL, NULL));
  check_ok(ddp_state_save_file(&p.state, path_of("a")));
  /* A caller of an older header, whose structs ended before `epoch`, and before `step`. */
  ddp_load_report report = {.struct_size = offsetof(ddp_load_report, step), .step = -5};
  shortened = p.state;
  shortened.struct_size = offsetof(ddp_state, epoch);
  check_ok(ddp_state_load_file(&shortened, path_of("a"), NULL, &report));
  check_int(report.epoch, 0);
  check_int(report.step, -5);
  report.struct_size = 0;
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_load_file(&p.state, path_of("a"), NULL, &report),
                   "struct_size is 0");
  ddp_load_options options = {.struct_size = 0};
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_load_file(&p.state, path_of("a"), &options, NULL),
                   "_init function");
  ddp_model_destroy(p.model);
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(&p.state, path_of("a")));
  p.model = NULL;
  release(&p);
  release(&other);
}

check_case(arguments_that_can_not_be_right_are_refused) { run_ranks(1, "local://arguments", wrong_arguments, NULL); }

static void use_texts(rank *self) {
  program p;
  const char *value = "untouched";
  char key[300];
  make_model(&p, self->group);
  memset(key, 'k', sizeof key);
  key[257] = '\0';
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_metadata(p.model, NULL, "b"));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_metadata(p.model, "", "b"));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_metadata(p.model, key, "b"));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_metadata(p.model, "\xff", "b"));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_set_metadata(p.model, "a", "\xc3"));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_metadata(p.model, "a", NULL));
  check_error(DDP_ERROR_INVALID_ARGUMENT, ddp_model_get_metadata(p.model, NULL, &value));
  check_text(value, "untouched");
  key[256] = '\0';
  check_ok(ddp_model_set_metadata(p.model, key, ""));
  check_ok(ddp_model_set_metadata(p.model, "\xc3\xa9", "line\n\"two\""));
  check_ok(ddp_state_save_file(&p.state, path_of("texts")));
  check_ok(ddp_model_set_metadata(p.model, "\xc3\xa9", NULL));
  check_ok(ddp_model_set_metadata(p.model, "later", "gone after the load"));
  check_ok(ddp_state_load_file(&p.state, path_of("texts"), NULL, NULL));
  check_ok(ddp_model_get_metadata(p.model, "\xc3\xa9", &value));
  check_text(value, "line\n\"two\"");
  check_ok(ddp_model_get_metadata(p.model, key, &value));
  check_int(strlen(value), 0);
  check_ok(ddp_model_get_metadata(p.model, "later", &value));
  check_true(value == NULL);
  release(&p);
}

check_case(texts_come_back) { run_ranks(1, "local://texts", use_texts, NULL); }

/* A stream in memory. */
typedef struct stream {
  char bytes[20000];
  int64_t size, at;
} stream;

static int32_t write_stream(void *user_data, const void *data, int64_t bytes) {
  stream *to = (stream *)user_data;
  if (to->size + bytes > (int64_t)sizeof to->bytes) return 1;
  memcpy(to->bytes + to->size, data, (size_t)bytes);
  to->size += bytes;
  return 0;
}

static int64_t read_stream(void *user_data, void *data, int64_t capacity) {
  stream *from = (stream *)user_data;
  const int64_t left = from->size - from->at, now = left < capacity ? left : capacity;
  memcpy(data, from->bytes + from->at, (size_t)now);
  from->at += now;
  return now;
}

static void use_streams(rank *self) {
  static stream memory; /* rank 0's alone */
  program p;
  float wanted[WIDTH];
  make_model(&p, self->group);
  p.state.step = 9;
  memcpy(wanted, p.weight, sizeof wanted);
  check_ok(self->index == 0 ? ddp_state_save(&p.state, write_stream, &memory) : ddp_state_save(&p.state, NULL, NULL));
  memset(p.weight, 0, sizeof p.weight);
  ddp_load_report report = {.struct_size = sizeof report};
  check_ok(ddp_state_load(&p.state, self->index == 0 ? read_stream : NULL, &memory, NULL, &report));
  check_int(memcmp(p.weight, wanted, sizeof wanted), 0);
  check_int(report.step, 9);
  /* Another argument of one rank: both learn it. */
  check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_file(&p.state, self->index == 0 ? NULL : path_of("a")),
                   "path is NULL on rank 0");
  release(&p);
}

check_case(streams_need_callbacks_on_rank_0_only) { run_ranks(2, "local://streams", use_streams, NULL); }

/* One rank saves while the other makes no call; the bytes are those of a save of all ranks (data), which rank 0 wrote. */
static void save_alone(rank *self) {
  program p;
  stream *const together = (stream *)self->data, alone = {.size = 0};
  make_model(&p, self->group);
  make_optimizer(&p);
  check_ok(ddp_model_commit(p.model, NULL));
  take_steps(&p, 0, 3);
  p.state.step = 3;
  check_ok(ddp_state_save(&p.state, self->index == 0 ? write_stream : NULL, together));
  if (self->index == 1) {
    check_ok(ddp_state_save_local(&p.state, write_stream, &alone));
    check_true(alone.size == together->size && memcmp(alone.bytes, together->bytes, (size_t)alone.size) == 0);
    check_error_text(DDP_ERROR_INVALID_ARGUMENT, ddp_state_save_local(&p.state, NULL, NULL), "fn is NULL");
    alone.size = (int64_t)sizeof alone.bytes; /* it is full */
    check_error_text(DDP_ERROR_CALLBACK, ddp_state_save_local(&p.state, write_stream, &alone), "returned 1");
  }
  check_ok(ddp_model_begin_backward(p.model, DDP_PASS_REDUCE));
  check_error(DDP_ERROR_INVALID_STATE, ddp_state_save_local(&p.state, write_stream, &alone));
  check_ok(ddp_model_mark_ready(p.model, 0, NULL));
  check_ok(ddp_model_end_backward(p.model, NULL));
  check_ok(ddp_group_abort(self->group, "the end of a test"));
  alone.size = 0;
  check_ok(ddp_state_save_local(&p.state, write_stream, &alone)); /* the group is broken */
  check_true(alone.size == together->size && memcmp(alone.bytes, together->bytes, (size_t)alone.size) == 0);
  release(&p);
}

/* Where each rank has a part of the optimizer's state; alone a rank has all. */
static void save_sharded_alone(rank *self) {
  program p;
  stream alone = {.size = 0};
  make_model(&p, self->group);
  check_defaults(optimizer_options, options);
  options.shard = 1;
  check_ok(ddp_optimizer_create_adam(p.model, NULL, &options, &p.optimizer));
  p.state.optimizer = p.optimizer;
  check_ok(ddp_model_commit(p.model, NULL));
  if (self->size > 1) {
    check_error_text(DDP_ERROR_INVALID_STATE, ddp_state_save_local(&p.state, write_stream, &alone),
                     "all ranks save together");
    check_int(alone.size, 0);
    p.state.optimizer = NULL;
  }
  check_ok(ddp_state_save_local(&p.state, write_stream, &alone));
  check_true(alone.size > 0);
  release(&p);
}

check_case(one_rank_saves_alone) {
  static stream together;
  run_ranks(2, "local://alone", save_alone, &together);
  run_ranks(1, "local://sharded-1", save_sharded_alone, NULL);
  run_ranks(2, "local://sharded-2", save_sharded_alone, NULL);
}

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state) {
  const char *const names[] = {"resume", "a", "texts"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) (void)unlink(path_of(names[i]));
  return rmdir(folder);
}

check_around(make_folder, remove_folder)
