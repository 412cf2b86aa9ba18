// SPDX-License-Identifier: Apache-2.0
// ddp_group_all_reduce, _reduce_scatter and _all_gather compared with ncclAllReduce, ncclReduceScatter and ncclAllGather: 1
// KiB to 256 MiB, F32 sums, in memory of the program. Each is looked at once for its numbers before it is timed.
#include "gpu/ranks_bench/ranks_bench.hpp"

namespace ddp::bench {
namespace {

using namespace ddp::test::card;

constexpr int64_t kSizes[] = {1 << 10, int64_t{16} << 10, int64_t{256} << 10, int64_t{1} << 20,
                              4 << 20, int64_t{25} << 20, int64_t{64} << 20,  int64_t{256} << 20};

/// What a measurement may cost more than NCCL alone: the ranks' hosts meet in each call, and large ones hide that.
constexpr double kMostUs = 20, kMostShare = 1.03;

int calls_of(int64_t bytes, bool quick) {
  const int calls = bytes <= (64 << 10) ? 200 : bytes <= (4 << 20) ? 60 : 15;
  return is_fake() ? 2 : quick ? calls / 5 : calls;
}

/// The floats at the beginning and at the end of an array are these.
void expect_ends(Place place, const Memory& memory, int64_t offset, int64_t count, float first, float last,
                 const char* what) {
  const std::string bytes = read_memory(place, static_cast<const char*>(memory.data()) + offset, count * 4);
  expect(bytes.substr(0, 4) == encoded_one(first) && bytes.substr(bytes.size() - 4) == encoded_one(last),
         std::string(what) + " gives the right numbers");
}

struct Array {
  Array(const World& w, int64_t bytes) : world(w), each(bytes / 4 / w.size), memory(w.place, each * 4 * w.size) {}
  [[nodiscard]] int64_t count() const { return each * world.size; }
  [[nodiscard]] char* mine() const { return static_cast<char*>(memory.data()) + each * 4 * world.rank; }
  [[nodiscard]] ddp_tensor whole() const { return flat(memory.data(), DDP_F32, count(), world.place); }
  [[nodiscard]] ddp_tensor part() const { return flat(mine(), DDP_F32, each, world.place); }
  /// Every element is this rank's number plus one.
  void fill() const {
    const std::string one = encoded_one(static_cast<float>(world.rank + 1));
    std::string all;
    for (int64_t i = 0; i < count(); ++i) all += one;
    memory.write(all);
  }
  [[nodiscard]] float sum() const { return static_cast<float>(world.size * (world.size + 1) / 2); }
  void wait() const { GPU_CALL(stream_synchronize(world.stream)); }

  const World& world;
  int64_t each;  // elements of one rank's part
  Memory memory;
};

using Way = std::function<void(const Array&)>;

struct Collective {
  const char* name;
  double bus_factor;
  Way ours, nccl;
  std::function<void(const Array&, const char* who)> check;
};

std::vector<Collective> collectives(const World& w) {
  const double n = w.size;
  const auto ends = [](const Array& a, const char* who) {
    expect_ends(a.world.place, a.memory, 0, a.count(), a.sum(), a.sum(), who);
  };
  const auto part = [](const Array& a, const char* who) {
    expect_ends(a.world.place, a.memory, a.each * 4 * a.world.rank, a.each, a.sum(), a.sum(), who);
  };
  const auto parts = [](const Array& a, const char* who) {
    expect_ends(a.world.place, a.memory, 0, a.count(), 1, static_cast<float>(a.world.size), who);
  };
  return {{"all-reduce", 2 * (n - 1) / n,
           [](const Array& a) {
             const ddp_tensor tensor = a.whole();
             OK(ddp_group_all_reduce(a.world.group, &tensor, DDP_SUM, a.world.stream));
           },
           [](const Array& a) { a.world.nccl.all_reduce(a.memory.data(), a.count(), a.world.stream); }, ends},
          {"reduce-scatter", (n - 1) / n,
           [](const Array& a) {
             const ddp_tensor from = a.whole(), to = a.part();
             OK(ddp_group_reduce_scatter(a.world.group, &from, &to, DDP_SUM, a.world.stream));
           },
           [](const Array& a) { a.world.nccl.reduce_scatter(a.memory.data(), a.mine(), a.each, a.world.stream); }, part},
          {"all-gather", (n - 1) / n,
           [](const Array& a) {
             const ddp_tensor from = a.part(), to = a.whole();
             OK(ddp_group_all_gather(a.world.group, &from, &to, a.world.stream));
           },
           [](const Array& a) { a.world.nccl.all_gather(a.mine(), a.memory.data(), a.each, a.world.stream); }, parts}};
}

}  // namespace

void measure_collectives(const World& world, Table& table, const RanksOptions& options) {
  for (const Collective& each : collectives(world))
    for (const int64_t bytes : kSizes) {
      if (is_fake() && bytes > (256 << 10)) continue;
      const Array array(world, bytes);
      for (const bool ours : {true, false}) {
        array.fill();
        (ours ? each.ours : each.nccl)(array);
        array.wait();
        each.check(array, ours ? "libddp" : "NCCL");
      }
      GPU_CALL(fill(array.memory.data(), 0, array.count() * 4, world.stream));
      const Times times = in_turn(
          world, options.quick ? 3 : 9, calls_of(bytes, options.quick), [&] { each.ours(array); },
          [&] { each.nccl(array); });
      table.add({each.name, array.count() * 4, times.ours_us, times.nccl_us, each.bus_factor, kMostShare, kMostUs});
    }
}

}  // namespace ddp::bench
