#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A program whose libddp has opened no module of a GPU, while the NVIDIA driver is in the process: memory of a GPU that is
# declared as the host's is refused by the driver's answer; the driver is this test's own. Managed memory is the host's.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/driver.c" <<'C'
/* One piece of memory of GPU 5 (hidden), one that is managed; the numbers are those of cuda.h. */
char *hidden, *managed;
int cuPointerGetAttributes(unsigned count, int *attributes, void **out, unsigned long long pointer) {
  const unsigned long long of[] = {(unsigned long long)hidden, (unsigned long long)managed};
  for (unsigned k = 0; k < count; k++) {
    const int on_gpu = of[0] <= pointer && pointer < of[0] + 4096, is_managed = of[1] <= pointer && pointer < of[1] + 4096;
    if (attributes[k] == 2) *(unsigned *)out[k] = on_gpu || is_managed ? 2 : 0;
    else if (attributes[k] == 8) *(unsigned *)out[k] = is_managed;
    else if (attributes[k] == 9) *(int *)out[k] = on_gpu || is_managed ? 5 : -2;
    else return 1;
  }
  return 0;
}
C
cat > "$folder/program.c" <<'C'
#include <ddp/ddp.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define MUST(what) do { if (!(what)) { printf("line %d: %s; %s\n", __LINE__, #what, ddp_last_error()); return 1; } } while (0)
int main(int argc, char **argv) {
  ddp_group *group = NULL;
  ddp_model *model = NULL;
  MUST(argc == 2 && ddp_group_create(NULL, NULL, &group) == DDP_OK && ddp_model_create(group, NULL, &model) == DDP_OK);
  float *hidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  float *managed = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const int64_t shape[] = {16};
  ddp_tensor tensor;
  MUST(ddp_tensor_init(&tensor, managed, DDP_F32, 1, shape) == DDP_OK);
  MUST(ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL) == DDP_OK); /* there is no driver yet */
  void *driver = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  MUST(driver != NULL);
  *(char **)dlsym(driver, "hidden") = (char *)hidden;
  *(char **)dlsym(driver, "managed") = (char *)managed;
  MUST(ddp_model_add_array(model, "w", hidden, NULL, 16, NULL) == DDP_ERROR_INVALID_ARGUMENT);
  MUST(strstr(ddp_last_error(), "parameter \"w\" was given as host memory, but it is memory of GPU 5: ") != NULL);
  MUST(strstr(ddp_last_error(), "ddp_model_add_parameter") != NULL);
  tensor.data = hidden;
  MUST(ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL) == DDP_ERROR_INVALID_ARGUMENT);
  MUST(strstr(ddp_last_error(), "device = DDP_CUDA") != NULL);
  MUST(ddp_model_add_array(model, "m", managed, NULL, 16, NULL) == DDP_OK);
  const pid_t child = fork(); /* CUDA cannot be used there: nobody is asked */
  if (child == 0) {
    ddp_group *own = NULL;
    *(char **)dlsym(driver, "hidden") = (char *)managed;
    tensor.data = managed;
    MUST(ddp_group_create(NULL, NULL, &own) == DDP_OK && ddp_group_all_reduce(own, &tensor, DDP_SUM, NULL) == DDP_OK);
    ddp_group_destroy(own);
    _exit(0);
  }
  int status = 1;
  MUST(waitpid(child, &status, 0) == child && status == 0);
  ddp_model_destroy(model);
  ddp_group_destroy(group);
  return 0;
}
C
flags=(${DDP_SANITIZE:+-fsanitize=$DDP_SANITIZE})
"$CC" -shared -fPIC -Wl,-soname,libcuda.so.1 "$folder/driver.c" -o "$folder/libcuda.so.1"
"$CC" "${flags[@]}" -I"$DDP_SOURCE_DIR/include" -I"$DDP_BUILD_DIR/include" "$folder/program.c" -o "$folder/program" "$DDP_LIBRARY" \
  -Wl,-rpath,"$(dirname "$DDP_LIBRARY")" -ldl
env -u DDP_FAKE_GPU_STRICT "$folder/program" "$folder/libcuda.so.1"
echo "refused by what the driver says"
