// SPDX-License-Identifier: Apache-2.0
// Memory of device 0 that a rank takes: a process with a context alone, and a rank that only communicates.
// Where there are two GPUs, a rank of the second must take nothing of the first. A process that watches asks the driver for
// the free memory, so everything that others use is counted.
#include <dlfcn.h>

#include "gpu/experiments/experiments.hpp"
#include "gpu/support/world.hpp"

namespace ddp::experiments {
namespace {

using namespace ddp::test::card;

constexpr int kLimitMs = 60'000;

/// A sign between processes: a file.
void raise(const Folder& folder, const std::string& name) { std::ofstream(folder.path() + "/" + name) << "x"; }
void wait_for(const Folder& folder, const std::string& name) {
  const auto start = Clock::now();
  while (!std::filesystem::exists(folder.path() + "/" + name)) {
    if (ms_since(start) > kLimitMs) throw std::runtime_error("nobody said " + name);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Prints "free K BYTES" for each sign ask-K.
std::string watch(const Folder& folder, int questions, Reporter& say) {
  std::string why;
  if (count_devices(why) == 0) throw std::runtime_error(why);
  const Memory context(kGpu, 4);  // makes device 0 current, with a context
  using MemGetInfo = int (*)(size_t*, size_t*);
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto info = driver != nullptr ? reinterpret_cast<MemGetInfo>(dlsym(driver, "cuMemGetInfo_v2")) : nullptr;
  if (info == nullptr) throw std::runtime_error("the driver has no cuMemGetInfo_v2");
  say.say("watching");
  for (int k = 0; k < questions; ++k) {
    wait_for(folder, "ask-" + std::to_string(k));
    size_t free = 0, total = 0;
    if (info(&free, &total) != 0) throw std::runtime_error("cuMemGetInfo failed");
    say.say("free " + std::to_string(k) + " " + std::to_string(free));
  }
  return "watched";
}

std::string only_a_context(const Folder& folder, Reporter& say) {
  std::string why;
  if (count_devices(why) == 0) throw std::runtime_error(why);
  const Memory context(kGpu, 4);
  say.say("here");
  wait_for(folder, "leave");
  return "left";
}

/// A rank with one tensor of 1 MiB that is summed twice; without a model.
std::string communicate(const Folder& folder, const Folder& meeting, int rank, int size, Place place, Reporter& say) {
  const GroupHandle group = join_world(meeting, rank, size, place);
  const Stream stream(place);
  const Memory memory(place, 1 << 20);
  const ddp_tensor tensor = flat(memory.data(), DDP_F32, (1 << 20) / 4, place);
  for (int k = 0; k < 2; ++k) OK(ddp_group_all_reduce(group.get(), &tensor, DDP_SUM, stream.get()));
  stream.wait();
  int32_t used = 1;
  GPU_CALL(device_is_used(0, &used));
  say.say("here, device 0 " + std::string(used != 0 ? "used" : "untouched"));
  wait_for(folder, "leave");
  return "left";
}

int64_t answer(const ProcResult& result, int question) {
  const std::string key = "free " + std::to_string(question) + " ";
  const size_t at = result.said.find(key);
  return at == std::string::npos ? -1 : std::atoll(result.said.c_str() + at + key.size());
}

/// Child 0 watches; the others are started by `body` when the first question is answered.
double mib_of(int others, const std::function<std::string(int, const Folder&, Reporter&)>& body,
              std::string* said = nullptr) {
  const Folder folder;
  Procs procs(1 + others, [&](int child, Reporter& say) {
    if (child == 0) return watch(folder, 2, say);
    wait_for(folder, "start");
    return body(child - 1, folder, say);
  });
  procs.wait_for(0, "watching", kLimitMs);
  raise(folder, "ask-0");
  procs.wait_for(0, "free 0", kLimitMs);
  raise(folder, "start");
  for (int child = 1; child <= others; ++child) procs.wait_for(child, "here", kLimitMs);
  raise(folder, "ask-1");
  const ProcResult watched = procs.wait_one(0, kLimitMs);
  raise(folder, "leave");
  for (const ProcResult& result : procs.wait(kLimitMs)) {
    if (result.exit_code != 0) throw std::runtime_error(result.describe());
    if (said != nullptr) *said += result.said;
  }
  return static_cast<double>(answer(watched, 0) - answer(watched, 1)) / (1 << 20);
}

}  // namespace

void measure_contexts(Report& report, const Options&) {
  if (is_fake()) end_skipped("the fake GPU has no contexts");
  need_world();
  std::string why;
  const int32_t devices = count_devices_elsewhere(why);
  const double context = mib_of(1, [](int, const Folder& folder, Reporter& say) { return only_a_context(folder, say); });
  report.figure("a process with a context of device 0 and the module loaded", context, "MiB");
  {
    const Folder meeting;
    const double both = mib_of(2, [&](int rank, const Folder& folder, Reporter& say) {
      pretend_to_be_a_host(rank);
      return communicate(folder, meeting, rank, 2, kGpu, say);
    });
    report.figure("a rank that only communicates, on device 0", both / 2, "MiB", "the half of two, which share the GPU");
    report.figure("... above the context: libddp, its kernels, NCCL", both / 2 - context, "MiB");
  }
  const char* const untouched = "a rank of device 1 takes nothing of device 0";
  if (devices < 2) return report.not_here(untouched, "needs two GPUs");
  const Folder meeting;
  std::string said;
  const double both = mib_of(
      2,
      [&](int rank, const Folder& folder, Reporter& say) { return communicate(folder, meeting, rank, 2, Place{rank}, say); },
      &said);
  report.figure("two ranks with a GPU each: taken of device 0", both, "MiB");
  report.verdict(untouched, said.find("untouched") != std::string::npos, said);
}

}  // namespace ddp::experiments
