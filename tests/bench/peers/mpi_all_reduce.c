/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce by an MPI, in place, measured by the method of protocol.h.
 *   mpirun -n 4 mpi_all_reduce [blocking | nonblocking] */
#define _POSIX_C_SOURCE 200809L
#include <mpi.h>

#include "protocol.h"

static void sum(void *context, float *data, int64_t count) {
  (void)context;
  MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* The same with MPI_Iallreduce, for which some versions have another, at times faster, algorithm. */
static void start_and_wait(void *context, float *data, int64_t count) {
  MPI_Request request;
  (void)context;
  MPI_Iallreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void barrier(void *context) {
  (void)context;
  MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
  protocol p = {0, 0, NULL, sum, barrier};
  int rank = 0, size = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  p.rank = rank;
  p.size = size;
  if (argc > 1 && strcmp(argv[1], "nonblocking") == 0) p.sum = start_and_wait;
  float *data = protocol_memory();
  protocol_run(&p, data);
  free(data);
  MPI_Finalize();
  return 0;
}
