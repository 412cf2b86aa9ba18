// SPDX-License-Identifier: Apache-2.0
// bench.gpu_ranks: libddp on two or more GPUs compared with NCCL called directly, in the same process, on the same stream,
// in turn.
//
// Method: a block is a number of calls in sequence after a barrier, timed by the host's clock until the stream is
// empty; of a block the slowest rank counts. Blocks of libddp and of NCCL take turns, and the median of the blocks is the
// figure. Bus bandwidth as NCCL's own tests have it: bytes / time * 2 (n - 1) / n, for reduce-scatter and all-gather of the
// whole array's bytes * (n - 1) / n.
#pragma once

#include "gpu/support/calls.hpp"
#include "gpu/support/place.hpp"

namespace ddp::bench {

struct RanksOptions {
  bool quick = false;
  std::string json;
};

/// NCCL without libddp: a communicator of its own, made as a program makes it. Counts are F32 elements.
class DirectNccl {
 public:
  /// Collective; the ranks meet over the group's host transport.
  DirectNccl(ddp_group* group, test::card::Place place);
  ~DirectNccl();
  DirectNccl(const DirectNccl&) = delete;
  DirectNccl& operator=(const DirectNccl&) = delete;
  void all_reduce(void* data, int64_t count, void* stream) const;
  void reduce_scatter(const void* send, void* receive, int64_t receive_count, void* stream) const;
  void all_gather(const void* send, void* receive, int64_t send_count, void* stream) const;

 private:
  struct Calls;
  Calls* calls_;
};

struct World {
  ddp_group* group;
  int rank, size;
  test::card::Place place;
  const DirectNccl& nccl;
  void* stream;
};

/// Rank 0 prints the rows and writes the file; the others have none.
class Table {
 public:
  Table(const World& world, std::string file) : quiet_(world.rank != 0), file_(std::move(file)) {}
  struct Row {
    std::string what;
    int64_t bytes;
    double ours_us, nccl_us;  // nccl_us 0: there is nothing to compare with
    double bus_factor;        // of bytes / time
    double most, most_us;     // ours may be at most nccl * most + most_us
  };
  void add(const Row& row);
  [[nodiscard]] static bool is_met(const Row& row) { return row.ours_us <= row.nccl_us * row.most + row.most_us; }

 private:
  void write() const;
  bool quiet_;
  std::string file_;
  std::vector<Row> rows_;
};

struct Times {
  double ours_us, nccl_us;
};
/// Medians of one call each, the two taking turns.
Times in_turn(const World& world, int rounds, int calls, const std::function<void()>& ours,
              const std::function<void()>& nccl);

void measure_collectives(const World& world, Table& table, const RanksOptions& options);
void measure_passes(const World& world, Table& table, const RanksOptions& options);
void measure_marks(const World& world, Table& table, const RanksOptions& options);

}  // namespace ddp::bench
