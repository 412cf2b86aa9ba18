// SPDX-License-Identifier: Apache-2.0
// ddprun -n GPUS bench.gpu_ranks [--quick] [--json FILE]
//
// Exit status: 0 measured, 1 it broke off, 2 wrong arguments, 77 there are not two GPUs, or fewer than ranks: ranks that
// share a GPU take turns, so no time would mean anything. On the fake GPU, to see that it works: --threads RANKS, without
// ddprun.
#include "gpu/ranks_bench/ranks_bench.hpp"

#include "gpu/support/world.hpp"

namespace ddp::bench {

using namespace ddp::test::card;

void Table::add(const Row& row) {
  rows_.push_back(row);
  if (quiet_) return;
  if (rows_.size() == 1)
    std::printf("%-28s %10s %12s %12s %10s %10s %7s  %s\n", "what", "KiB", "libddp, us", "NCCL, us", "GB/s", "GB/s", "ratio",
                "within");
  const std::string met = test::card::is_fake() ? "not judged" : is_met(row) ? "yes" : "NO";
  if (row.nccl_us > 0) {
    const auto bandwidth = [&](double us) { return row.bus_factor * static_cast<double>(row.bytes) / us * 1e-3; };
    std::printf("%-28s %10.1f %12.1f %12.1f %10.2f %10.2f %7.2f  %.2f of NCCL + %g us: %s\n", row.what.c_str(),
                static_cast<double>(row.bytes) / 1024, row.ours_us, row.nccl_us, bandwidth(row.ours_us),
                bandwidth(row.nccl_us), row.ours_us / row.nccl_us, row.most, row.most_us, met.c_str());
  } else {
    std::printf("%-28s %10s %12.2f %12s %10s %10s %7s  %g us: %s\n", row.what.c_str(), "", row.ours_us, "", "", "", "",
                row.most_us, met.c_str());
  }
  std::fflush(stdout);
  write();
}

void Table::write() const {
  if (file_.empty()) return;
  FILE* const file = std::fopen((file_ + ".new").c_str(), "w");
  if (file == nullptr) return;
  std::fputs("[\n", file);
  for (size_t k = 0; k < rows_.size(); ++k) {
    const Row& r = rows_[k];
    std::fprintf(file,
                 "  {\"what\": \"%s\", \"bytes\": %lld, \"libddp_us\": %.3f, \"nccl_us\": %.3f, \"bus_factor\": %.6f, "
                 "\"met\": %s}%s\n",
                 r.what.c_str(), static_cast<long long>(r.bytes), r.ours_us, r.nccl_us, r.bus_factor,
                 is_met(r) ? "true" : "false", k + 1 < rows_.size() ? "," : "");
  }
  std::fputs("]\n", file);
  std::fclose(file);
  (void)std::rename((file_ + ".new").c_str(), file_.c_str());
}

namespace {

double block_us(const World& world, int calls, const std::function<void()>& call) {
  OK(ddp_group_barrier(world.group));
  const auto start = std::chrono::steady_clock::now();
  for (int k = 0; k < calls; ++k) call();
  GPU_CALL(stream_synchronize(world.stream));
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
}

double slowest_median(const World& world, std::vector<double> blocks) {
  OK(ddp_group_reduce_metrics(world.group, blocks.data(), static_cast<int64_t>(blocks.size()), DDP_MAX));
  std::sort(blocks.begin(), blocks.end());
  return blocks[blocks.size() / 2];
}

void measure(ddp_group* group, int rank, int size, Place place, const RanksOptions& options) {
  place.make_current();
  const Stream stream(place);
  const DirectNccl nccl(group, place);
  const World world{group, rank, size, place, nccl, stream.get()};
  Table table(world, rank == 0 ? options.json : "");
  measure_collectives(world, table, options);
  measure_passes(world, table, options);
  measure_marks(world, table, options);
  OK(ddp_group_barrier(group));
}

int measure_threads(int size, const RanksOptions& options) {
  if (!is_fake()) return std::fprintf(stderr, "--threads is for the fake GPU\n"), 2;
  const auto body = [&](const Rank& at) {
    try {
      measure(at.group, at.rank, at.size, at.place, options);
    } catch (const std::exception& error) {  // the others may wait for this rank inside NCCL
      std::fprintf(stderr, "rank %d: %s\n", at.rank, error.what());
      std::_Exit(1);
    }
  };
  run_threads(size, body, 200'000);
  return nothing_was_violated(nullptr) == 0 ? 0 : 1;
}

int measure_as_rank(const RanksOptions& options) {
  const char *const rank_text = getenv("RANK"), *const size_text = getenv("WORLD_SIZE"),
                    *const local_text = getenv("LOCAL_RANK");
  std::string why;
  const int32_t gpus = count_devices(why);
  if (gpus < 2) end_skipped(gpus == 0 ? "no GPU: " + why : "needs two GPUs, here is one: ranks that share a GPU take turns");
  if (is_fake()) end_skipped("on the fake GPU ranks are threads: --threads RANKS");
  if (rank_text == nullptr || size_text == nullptr || std::atoi(size_text) < 2)
    end_skipped("start it with ddprun -n " + std::to_string(gpus));
  const int rank = std::atoi(rank_text), size = std::atoi(size_text), local = std::atoi(local_text ? local_text : rank_text);
  if (local >= gpus) end_skipped(std::to_string(size) + " ranks, here are " + std::to_string(gpus) + " GPUs");
  const ddp_group_options wanted = world_options_of(rank, size, Place{local});
  ddp_group* made = nullptr;
  OK(ddp_group_create(nullptr, &wanted, &made));
  const GroupHandle group(made);
  if (rank == 0) std::printf("on %s, %d ranks\n", table().name, size);
  measure(made, rank, size, Place{local}, options);
  return 0;
}

int run(int argc, char** argv) {
  RanksOptions options;
  int threads = 0;
  for (int k = 1; k < argc; ++k) {
    if (std::strcmp(argv[k], "--quick") == 0)
      options.quick = true;
    else if (std::strcmp(argv[k], "--json") == 0 && k + 1 < argc)
      options.json = argv[++k];
    else if (std::strcmp(argv[k], "--threads") == 0 && k + 1 < argc)
      threads = std::atoi(argv[++k]);
    else
      return std::fprintf(stderr, "%s is not understood: [--quick] [--json FILE] [--threads RANKS]\n", argv[k]), 2;
  }
  return threads > 0 ? measure_threads(threads, options) : measure_as_rank(options);
}

}  // namespace

Times in_turn(const World& world, int rounds, int calls, const std::function<void()>& ours,
              const std::function<void()>& nccl) {
  std::vector<double> our_blocks, nccl_blocks;
  for (int round = -1; round < rounds; ++round)  // the first is to warm up
    for (const bool first : {true, false}) {
      const bool is_ours = (round % 2 == 0) == first;  // each is first in turn
      const double us = block_us(world, calls, is_ours ? ours : nccl);
      if (round >= 0) (is_ours ? our_blocks : nccl_blocks).push_back(us);
    }
  return {slowest_median(world, our_blocks), slowest_median(world, nccl_blocks)};
}

}  // namespace ddp::bench

int main(int argc, char** argv) {
  try {
    return ddp::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
