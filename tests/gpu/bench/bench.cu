// SPDX-License-Identifier: Apache-2.0
// bench.gpu: the figures of libddp's GPU side, each with its target. tests/gpu/run.sh runs it; by hand:
//
//   bench.gpu [--quick] [--json FILE] [--part copies|updates|steps|host|overlap]
//
// The part `overlap` needs DDP_MODULE_PATH to name the folder of the wire module (overlap.cu has the reason), so it is not
// part of a run without --part.
#include <cstring>

#include "gpu/bench/bench.hpp"
#include "gpu/support/module.hpp"

namespace ddp::bench {

void must(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(error));
  std::exit(1);
}
void must(ddp_status status, const char* call) {
  if (status == DDP_OK) return;
  std::fprintf(stderr, "%s: %s: %s\n", call, ddp_status_name(status), ddp_last_error());
  std::exit(1);
}

void Report::add(const Row& row) {
  rows_.push_back(row);
  std::printf("%-30s %10.4g %-5s %-34s %-4s %s\n", row.id.c_str(), row.value, row.unit.c_str(), row.target.c_str(),
              row.met == 1   ? "yes"
              : row.met == 0 ? "NO"
                             : "-",
              row.note.c_str());
  std::fflush(stdout);
  write();
}

double Report::value(const std::string& id) const {
  for (const Row& row : rows_)
    if (row.id == id) return row.value;
  return 0;
}

void Report::write() const {
  if (file_.empty()) return;
  const std::string fresh = file_ + ".new";
  FILE* const file = std::fopen(fresh.c_str(), "w");
  if (file == nullptr) return;
  std::fputs("[\n", file);
  for (size_t k = 0; k < rows_.size(); ++k) {
    const Row& r = rows_[k];
    std::fprintf(file,
                 "  {\"id\": \"%s\", \"what\": \"%s\", \"value\": %.9g, \"unit\": \"%s\", \"target\": \"%s\", \"met\": %s, "
                 "\"note\": \"%s\"}%s\n",
                 r.id.c_str(), r.what.c_str(), r.value, r.unit.c_str(), r.target.c_str(),
                 r.met == 1   ? "true"
                 : r.met == 0 ? "false"
                              : "null",
                 r.note.c_str(), k + 1 < rows_.size() ? "," : "");
  }
  std::fputs("]\n", file);
  std::fclose(file);
  (void)std::rename(fresh.c_str(), file_.c_str());
}

Stopwatch::Stopwatch() {
  MUST(cudaEventCreate(&begin_));
  MUST(cudaEventCreate(&end_));
}
Stopwatch::~Stopwatch() {
  (void)cudaEventDestroy(begin_);
  (void)cudaEventDestroy(end_);
}
double Stopwatch::ms() const {
  float ms = 0;
  MUST(cudaEventSynchronize(end_));
  MUST(cudaEventElapsedTime(&ms, begin_, end_));
  return static_cast<double>(ms);
}

namespace {
__global__ void spin(uint64_t nanoseconds) {
  uint64_t start = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}
}  // namespace

double time_on_stream(cudaStream_t stream, int repetitions, Host host, const std::function<void(int)>& work) {
  Stopwatch watch;
  std::vector<double> all;
  for (int k = 0; k < 5; ++k) work(k);
  for (int k = 0; k < repetitions; ++k) {
    MUST(cudaStreamSynchronize(stream));
    if (host == Host::kAhead) spin<<<1, 1, 0, stream>>>(300'000);
    watch.start(stream);
    work(k);
    watch.stop(stream);
    all.push_back(watch.ms());
  }
  return median(all);
}

namespace {
__global__ void fill_random(float* data, int64_t count, uint64_t seed) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    uint64_t x = (static_cast<uint64_t>(i) + seed) * 0x9E3779B97F4A7C15u;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    data[i] = static_cast<float>(static_cast<int32_t>(x >> 32)) * 0x1p-31F;
  }
}
}  // namespace

Buffer::Buffer(int64_t bytes) : bytes_(bytes) {
  MUST(cudaMalloc(&data_, static_cast<size_t>(bytes)));
  fill_random<<<512, 256>>>(static_cast<float*>(data_), bytes / 4, reinterpret_cast<uintptr_t>(data_));
  MUST(cudaDeviceSynchronize());
}
Buffer::~Buffer() {
  if (data_ != nullptr) (void)cudaFree(data_);
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

ddp_tensor on_gpu(void* data, int64_t count) { return {data, DDP_F32, DDP_CUDA, 0, 1, {count}}; }

ddp_group* alone() {
  ddp_group_options options;
  MUST(ddp_group_options_init(&options, sizeof options));
  options.rank = 0;
  options.world_size = 1;
  options.device_index = 0;
  ddp_group* group = nullptr;
  MUST(ddp_group_create(nullptr, &options, &group));
  return group;
}

namespace {

struct Part {
  const char* name;
  void (*measure)(Report&, const Options&);
  bool usual;
};
constexpr Part kParts[] = {{"copies", measure_copies, true},
                           {"updates", measure_updates, true},
                           {"steps", measure_steps, true},
                           {"host", measure_host, true},
                           {"overlap", measure_overlap, false}};

int run(int argc, char** argv) {
  Options options;
  std::string json, only;
  for (int k = 1; k < argc; ++k) {
    const std::string argument = argv[k];
    if (argument == "--quick")
      options.quick = true;
    else if (argument == "--json" && k + 1 < argc)
      json = argv[++k];
    else if (argument == "--part" && k + 1 < argc)
      only = argv[++k];
    else
      return std::fprintf(stderr,
                          "%s is not understood: [--quick] [--json FILE] [--part copies|updates|steps|host|overlap]\n",
                          argv[k]),
             2;
  }
  if (only != "overlap") test::card::need_devices(1);  // overlap forks, so it looks for itself
  Report report(json);
  bool found = false;
  for (const Part& part : kParts) {
    if (only.empty() ? !part.usual : only != part.name) continue;
    found = true;
    part.measure(report, options);
  }
  if (!found) std::fprintf(stderr, "there is no part %s\n", only.c_str());
  return found ? 0 : 2;
}

}  // namespace
}  // namespace ddp::bench

int main(int argc, char** argv) { return ddp::bench::run(argc, argv); }
