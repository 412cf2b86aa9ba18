/* SPDX-License-Identifier: Apache-2.0 */
/* Example 1: ranks meet, add up numbers, and part.
 *
 *   ddprun -n 4 01_all_reduce
 *
 * ddprun starts the program four times and tells each copy, through environment variables, which rank it is and where to
 * meet the others. torchrun, mpirun and Slurm do the same, so this program runs under them too.
 */
#include <ddp/ddp.h>
#include <stdio.h>
#include <stdlib.h>

/* Every call that can fail returns a status. The text of the last failure names the culprit: print it. */
static void check(ddp_status status, const char *call) {
  if (status == DDP_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  exit(1);
}
#define CHECK(call) check((call), #call)

int main(void) {
  /* NULL, NULL: the rendezvous of the launcher, and all defaults. Returns when all ranks have come. */
  ddp_group *group = NULL;
  CHECK(ddp_group_create(NULL, NULL, &group));
  const int rank = ddp_group_get_rank(group);
  const int size = ddp_group_get_size(group);

  /* A tensor describes memory that stays ours: here rank r contributes {r + 1, 10 * (r + 1)}. */
  float values[2] = {(float)(rank + 1), 10.0F * (float)(rank + 1)};
  const int64_t shape[1] = {2};
  ddp_tensor tensor;
  CHECK(ddp_tensor_init(&tensor, values, DDP_F32, 1, shape));

  /* In place: afterwards every rank holds the same sums, to the bit. */
  CHECK(ddp_group_all_reduce(group, &tensor, DDP_SUM, NULL));
  const float expected = (float)(size * (size + 1) / 2);
  printf("rank %d of %d: the sums are %g and %g\n", rank, size, (double)values[0], (double)values[1]);

  ddp_group_destroy(group);
  return values[0] == expected && values[1] == 10.0F * expected ? 0 : 1;
}
