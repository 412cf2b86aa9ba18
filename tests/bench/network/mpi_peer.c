/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce by an MPI between hosts, in place, measured by the method of protocol.h. */
#define _GNU_SOURCE
#include <mpi.h>

#include "protocol.h"

static void sum(void *context, float *data, int64_t count) {
  (void)context;
  MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void barrier(void *context) {
  (void)context;
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
  int rank = 0, size = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const protocol p = {meeting_open(rank, size), NULL, sum, barrier};
  protocol_run(&p);
  MPI_Finalize();
  return 0;
}
