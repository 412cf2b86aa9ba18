# SPDX-License-Identifier: Apache-2.0
"""A host may open and close the library as often as it likes: 100 times, with a group in between, memory and descriptors stay where
they are after the first rounds."""
import tempfile

from common import LIBRARY, SANITIZE, build, run, tree

SOURCE = r"""
#include <ddp/ddp.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int descriptors(void) {
  int count = 0;
  DIR *all = opendir("/proc/self/fd");
  while (readdir(all)) count++;
  closedir(all);
  return count;
}

static int round_trip(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  int32_t (*version)(void);
  const char *(*last_error)(void);
  ddp_status (*init)(ddp_group_options *, int64_t);
  ddp_status (*create)(const char *, const ddp_group_options *, ddp_group **);
  void (*destroy)(ddp_group *);
  *(void **)&version = dlsym(library, "ddp_version");
  *(void **)&last_error = dlsym(library, "ddp_last_error");
  *(void **)&init = dlsym(library, "ddp_group_options_init");
  *(void **)&create = dlsym(library, "ddp_group_create");
  *(void **)&destroy = dlsym(library, "ddp_group_destroy");
  if (version() != DDP_VERSION) return 2;
  ddp_group_options options;
  if (init(&options, sizeof options) != DDP_OK) return 3;
  options.rank = 0;
  options.world_size = 1;
  ddp_group *group = NULL;
  if (create("local://reload", &options, &group) != DDP_OK) return fprintf(stderr, "%s\n", last_error()), 4;
  if (init(NULL, 8) != DDP_ERROR_INVALID_ARGUMENT || strlen(last_error()) == 0) return 5;
  destroy(group);
  return dlclose(library) == 0 ? 0 : 6;
}

int main(int argc, char **argv) {
  int before = 0;
  for (int i = 0; i < 100; i++) {
    const int failed = round_trip(argv[argc - 1]);
    if (failed) return failed;
    if (i == 4) before = descriptors();
  }
  if (descriptors() != before) return fprintf(stderr, "%d descriptors became %d\n", before, descriptors()), 7;
  return 0;
}
"""
with tempfile.TemporaryDirectory() as work:
    run([build(work, "reload", SOURCE, link=False, flags=["-std=gnu99"]), LIBRARY])
tree.verdict([], "100 times opened and closed" + (f", with {SANITIZE}" if SANITIZE else ""))
