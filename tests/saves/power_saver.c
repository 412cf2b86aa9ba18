/* SPDX-License-Identifier: Apache-2.0 */
/* A program that saves one checkpoint after the other, and checks the files after a power cut; see tests/power_cut.sh.
 *
 *   saves.power_saver save FOLDER       continues from the newest checkpoint; prints each step when its save has returned
 *   saves.power_saver save-file FOLDER  the same with one file, which each save replaces
 *   saves.power_saver cut FOLDER        ends the file system under FOLDER; what was not synced is lost (as fstests does it)
 *   saves.power_saver check FOLDER STEP fails unless the newest checkpoint is whole and of STEP or the one after it
 *   saves.power_saver check-file FOLDER STEP
 */
#include <ddp/experimental.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { VALUES = 30000 };

typedef struct program {
  float values[VALUES], grads[VALUES];
  ddp_group *group;
  ddp_model *model;
  ddp_optimizer *adam;
  ddp_state state;
  char file[4096]; /* "": a folder */
} program;

static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)

/* Different in every value and step, and exact. */
static float value_of(int64_t step, int i) { return (float)((step * 31 + i * 7) % 65521); }

static void make(program *p, int one_file, const char *folder) {
  if (one_file) snprintf(p->file, sizeof p->file, "%s/model", folder);
  CHECK(ddp_group_create(NULL, NULL, &p->group));
  CHECK(ddp_model_create(p->group, NULL, &p->model));
  CHECK(ddp_model_add_array(p->model, "values", p->values, p->grads, VALUES, NULL));
  CHECK(ddp_optimizer_create_adam(p->model, NULL, NULL, &p->adam));
  CHECK(ddp_model_commit(p->model, NULL));
  CHECK(ddp_state_init(&p->state, sizeof p->state));
  p->state.model = p->model;
  p->state.optimizer = p->adam;
}

/* The step of the newest checkpoint; 0: no checkpoint. `skipped`: newer files that are not whole. */
static int64_t load(program *p, const char *folder, int64_t *skipped) {
  ddp_load_report report = {.struct_size = sizeof report};
  const ddp_status status = p->file[0] == '\0' ? ddp_state_load_latest(&p->state, folder, NULL, &report)
                                               : ddp_state_load_file(&p->state, p->file, NULL, &report);
  *skipped = report.skipped;
  if (status == DDP_ERROR_NO_CHECKPOINT) return 0;
  if (status == DDP_ERROR_IO && p->file[0] != '\0' && access(p->file, F_OK) != 0) return 0;
  check(status, "load");
  return report.step;
}

static int save(program *p, const char *folder) {
  int64_t skipped = 0;
  for (int64_t step = load(p, folder, &skipped) + 1;; step++) {
    char line[32];
    for (int i = 0; i < VALUES; i++) p->values[i] = value_of(step, i);
    p->state.step = step;
    if ((p->file[0] == '\0' ? ddp_state_save_latest(&p->state, folder, 3) : ddp_state_save_file(&p->state, p->file)) !=
        DDP_OK) {
      fprintf(stderr, "step %lld: %s\n", (long long)step, ddp_last_error());
      return 3;
    }
    const int bytes = snprintf(line, sizeof line, "%lld\n", (long long)step);
    if (ddp_group_get_rank(p->group) == 0 && write(STDOUT_FILENO, line, (size_t)bytes) != bytes) return 1;
  }
}

static int look(program *p, const char *folder, int64_t promised) {
  int64_t skipped = 0;
  const int64_t step = load(p, folder, &skipped);
  int wrong = 0;
  for (int i = 0; i < VALUES && step > 0; i++) wrong += p->values[i] != value_of(step, i);
  printf("%lld\n", (long long)step);
  if (step != promised && step != promised + 1)
    fprintf(stderr, "step %lld was saved, but step %lld is there\n", (long long)promised, (long long)step);
  if (wrong != 0) fprintf(stderr, "%d values of step %lld are wrong\n", wrong, (long long)step);
  if (skipped != 0) fprintf(stderr, "%lld files are not whole\n", (long long)skipped);
  return (step != promised && step != promised + 1) || wrong != 0 || skipped != 0;
}

/* EXT4_IOC_SHUTDOWN without a flush of the journal; XFS has the same. */
static int cut(const char *folder) {
  const uint32_t without_flush = 2;
  const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && ioctl(fd, _IOR('X', 125, uint32_t), &without_flush) == 0) return 0;
  fprintf(stderr, "%s: %s\n", folder, strerror(errno));
  return 1;
}

int main(int argc, char **argv) {
  static program p;
  if (argc < 3) return 2;
  if (strcmp(argv[1], "cut") == 0) return cut(argv[2]);
  make(&p, strstr(argv[1], "-file") != NULL, argv[2]);
  int code = 2;
  if (strncmp(argv[1], "save", 4) == 0) code = save(&p, argv[2]);
  if (strncmp(argv[1], "check", 5) == 0 && argc == 4) code = look(&p, argv[2], atoll(argv[3]));
  ddp_optimizer_destroy(p.adam);
  ddp_model_destroy(p.model);
  ddp_group_destroy(p.group);
  return code;
}
