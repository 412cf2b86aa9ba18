// SPDX-License-Identifier: Apache-2.0
#include "ddprun/measure.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstring>
#include <memory>

#include "core/error.hpp"
#include "ddprun/numbers.hpp"
#include "os/clock.hpp"
#include "os/huge_pages.hpp"
#include "trace/clocks.hpp"

namespace ddp::ddprun {
namespace {

constexpr const char* kName = "libddp.so.0.1";

std::string own_folder() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  const std::string whole(path.data(), length > 0 ? static_cast<size_t>(length) : 0);
  return whole.substr(0, whole.rfind('/') + 1);
}

}  // namespace

Library open_library() {
  void* handle = nullptr;
  const std::string here = own_folder();
  // Where it is built, where it is installed, and as the loader finds it.
  for (const std::string& path : {here + "../src/" + kName, here + "../" DDP_LIBDIR "/" + kName, std::string(kName)})
    if (handle == nullptr) handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr)
    throw make_error(DDP_ERROR_IO,
                     "libddp was not found beside ddprun, nor by the loader (%s): install it, or set LD_LIBRARY_PATH",
                     dlerror());
  Library library;
#define DDP_CHECK_LOAD(name)                                                            \
  library.name = reinterpret_cast<decltype(library.name)>(dlsym(handle, "ddp_" #name)); \
  if (library.name == nullptr) throw make_error(DDP_ERROR_IO, "%s has no ddp_" #name ": it is of another version", kName);
  DDP_CHECK_FUNCTIONS(DDP_CHECK_LOAD)
#undef DDP_CHECK_LOAD
  return library;
}

namespace {

constexpr int64_t kReduced = 25 * kMiB;
constexpr int64_t kSent = 4 * kMiB;
constexpr int64_t kParameters = 4 * kMiB;
constexpr int64_t kAdamBytes =
    28;  // of a parameter: values, gradient and two moments are read, all but the gradient written
constexpr int32_t kMostPairs = 28;  // those of 8 ranks; of more ranks the neighbours
constexpr int kClockRounds = 20;
constexpr double kShortS = 0.15;  // that one figure may take
constexpr int kMostRounds = 2'000;

double now_s() { return static_cast<double>(os::now_ns()) * 1e-9; }

enum class Take { kMedian, kBest };

/// Of some rounds, the same number of them on all ranks of `group`.
double time_of(const Library& library, ddp_group* group, const std::function<void()>& body, Take take = Take::kMedian) {
  body();  // what is made at first use
  require(library, library.group_barrier(group));
  double begin = now_s();
  body();
  double one = now_s() - begin;
  require(library, library.group_reduce_metrics(group, &one, 1, DDP_MAX));
  const int rounds = static_cast<int>(std::clamp(kShortS / std::max(one, 1e-7), 3.0, static_cast<double>(kMostRounds)));
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    begin = now_s();
    body();
    times.push_back(now_s() - begin);
  }
  const auto chosen = times.begin() + (take == Take::kBest ? 0 : rounds / 2);
  std::nth_element(times.begin(), chosen, times.end());
  return *chosen;
}

ddp_tensor tensor_of(const Library& library, void* data, ddp_dtype dtype, int64_t count) {
  ddp_tensor tensor;
  require(library, library.tensor_init(&tensor, data, dtype, 1, &count));
  return tensor;
}

/// All ranks at once, each from memory of its own to memory of its own, on huge pages as libddp's is.
double time_of_copy(const Library& library, ddp_group* group, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  const auto map = [size] {
    std::unique_ptr<void, std::function<void(void*)>> memory(os::map_zeroed(size),
                                                             [size](void* data) { os::unmap(data, size); });
    if (memory == nullptr) throw Error();
    std::memset(memory.get(), 1, size);
    return memory;
  };
  const auto from = map(), to = map();
  const auto copy = [&] {
    std::memcpy(to.get(), from.get(), size);
    asm volatile("" : : "r"(to.get()) : "memory");  // the copy is of use
  };
  return time_of(library, group, copy, Take::kBest);
}

std::vector<std::pair<int32_t, int32_t>> pairs_of(int32_t size) {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  const bool all = size * (size - 1) / 2 <= kMostPairs;
  for (int32_t first = 0; first < size; ++first)
    for (int32_t second = first + 1; second < size; ++second)
      if (all || second == first + 1) pairs.emplace_back(first, second);
  return pairs;
}

PairFigures measure_pair(const Library& library, ddp_group* group, int32_t first, int32_t second) {
  const int32_t rank = library.group_get_rank(group);
  const bool takes_part = rank == first || rank == second;
  double figures[2] = {0, 0};
  ddp_group* pair = nullptr;
  require(library, library.group_split(group, takes_part ? 0 : DDP_NO_COLOR, rank, nullptr, &pair));
  if (takes_part) {
    float number = 1;
    const ddp_tensor one = tensor_of(library, &number, DDP_F32, 1);
    figures[0] =
        1e6 * time_of(library, pair, [&] { require(library, library.group_all_reduce(pair, &one, DDP_MAX, nullptr)); });
    std::vector<uint8_t> bytes(static_cast<size_t>(kSent));
    const ddp_tensor sent = tensor_of(library, bytes.data(), DDP_U8, kSent);
    figures[1] = static_cast<double>(kSent) /
                 time_of(library, pair, [&] { require(library, library.group_broadcast(pair, &sent, 0, nullptr)); });
    library.group_destroy(pair);
  }
  require(library, library.group_reduce_metrics(group, figures, 2, DDP_MAX));
  return {first, second, figures[0], figures[1]};
}

void measure_all_reduce(const Library& library, ddp_group* group, Figures& figures) {
  void* memory = nullptr;
  require(library, library.group_alloc(group, kReduced, &memory));
  const ddp_tensor tensor = tensor_of(library, memory, DDP_F32, kReduced / 4);
  figures.bytes = kReduced;
  figures.all_reduce_s =
      time_of(library, group, [&] { require(library, library.group_all_reduce(group, &tensor, DDP_AVERAGE, nullptr)); });
  require(library, library.group_free(group, memory));
  figures.copy_s = time_of_copy(library, group, kReduced);
  figures.barrier_us = 1e6 * time_of(library, group, [&] { require(library, library.group_barrier(group)); });
}

/// On each rank for itself, all at once.
void measure_adam(const Library& library, ddp_group* group, Figures& figures) {
  ddp_group* alone = nullptr;
  require(library, library.group_split(group, library.group_get_rank(group), 0, nullptr, &alone));
  std::vector<float> values(static_cast<size_t>(kParameters)), gradients(values.size(), 1e-3F);
  ddp_model* model = nullptr;
  ddp_optimizer* adam = nullptr;
  require(library, library.model_create(alone, nullptr, &model));
  require(library, library.model_add_array(model, "values", values.data(), gradients.data(), kParameters, nullptr));
  require(library, library.model_commit(model, nullptr));
  require(library, library.optimizer_create_adam(model, nullptr, nullptr, &adam));
  std::vector<double> times;
  for (int round = 0; round < 12; ++round) {
    require(library, library.group_barrier(group));
    require(library, library.model_begin_backward(model, DDP_PASS_REDUCE));
    require(library, library.model_mark_ready(model, 0, nullptr));
    require(library, library.model_end_backward(model, nullptr));
    const double begin = now_s();
    require(library, library.optimizer_step(adam, nullptr));
    if (round >= 2) times.push_back(now_s() - begin);
  }
  std::nth_element(times.begin(), times.begin() + 5, times.end());
  library.optimizer_destroy(adam);
  library.model_destroy(model);
  library.group_destroy(alone);
  figures.parameters = kParameters;
  figures.adam_s = times[5];
  figures.adam_copy_s = time_of_copy(library, group, kParameters * kAdamBytes / 2);
}

int64_t to_ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

double realtime_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

void require(const Library& library, ddp_status status) {
  if (status != DDP_OK) throw Error(status, library.last_error());
}

Figures measure(const Library& library, ddp_group* group, const std::function<void(const char*)>& notice) {
  Figures figures;
  if (library.group_get_size(group) > 1) {
    notice("links of pairs");
    for (const auto& [first, second] : pairs_of(library.group_get_size(group)))
      figures.pairs.push_back(measure_pair(library, group, first, second));
    notice("all-reduce of all ranks");
    measure_all_reduce(library, group, figures);
  }
  notice("AdamW");
  measure_adam(library, group, figures);
  // A training waits for the slowest rank.
  double slowest[5] = {figures.all_reduce_s, figures.copy_s, figures.barrier_us, figures.adam_s, figures.adam_copy_s};
  require(library, library.group_reduce_metrics(group, slowest, 5, DDP_MAX));
  figures.all_reduce_s = slowest[0], figures.copy_s = slowest[1], figures.barrier_us = slowest[2];
  figures.adam_s = slowest[3], figures.adam_copy_s = slowest[4];
  return figures;
}

std::vector<ClockFigures> compare_clocks(const Library& library, ddp_group* group) {
  const auto size = static_cast<size_t>(library.group_get_size(group));
  std::vector<double> own(size_t{2} * kClockRounds), all(own.size() * size), nothing(size);
  const ddp_tensor all_nothing = tensor_of(library, nothing.data(), DDP_F64, static_cast<int64_t>(size));
  double zero = 0;
  const ddp_tensor one = tensor_of(library, &zero, DDP_F64, 1);
  for (size_t round = 0; round < kClockRounds; ++round) {
    own[2 * round] = realtime_s();
    require(library, library.group_all_gather(group, &one, &all_nothing, nullptr));
    own[2 * round + 1] = realtime_s();
  }
  const ddp_tensor mine = tensor_of(library, own.data(), DDP_F64, static_cast<int64_t>(own.size()));
  const ddp_tensor everybodys = tensor_of(library, all.data(), DDP_F64, static_cast<int64_t>(all.size()));
  require(library, library.group_all_gather(group, &mine, &everybodys, nullptr));
  const auto times_of = [&](size_t rank) {
    std::vector<trace::GatherTimes> times;
    const double* const theirs = all.data() + rank * own.size();
    for (size_t round = 0; round < kClockRounds; ++round)
      times.push_back({round, to_ns(theirs[2 * round]), to_ns(theirs[2 * round + 1])});
    return times;
  };
  std::vector<ClockFigures> clocks{{0, 0}};
  for (size_t rank = 1; rank < size; ++rank) {
    const trace::ClockBounds bounds = *trace::compare_clocks(times_of(0), times_of(rank));
    clocks.push_back({static_cast<double>(bounds.offset_ns) * 1e-9, static_cast<double>(bounds.error_ns) * 1e-9});
  }
  return clocks;
}

}  // namespace ddp::ddprun
