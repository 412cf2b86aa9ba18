// SPDX-License-Identifier: Apache-2.0
// The copy rate of this GPU, and packing and unpacking against it: gradients of many tensors into one bucket and back, by
// the module's own kernel.
#include <limits>

#include "gpu/bench/bench.hpp"
#include "gpu/support/module.hpp"

namespace ddp::bench {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

/// GB/s, counting bytes that are read and written.
double rate(int64_t bytes, double ms) { return 2.0 * static_cast<double>(bytes) / ms * 1e-6; }

/// Enough pairs of buffers that no data is found in the cache again.
struct Rotation {
  std::vector<Buffer> from, to;
  Rotation(int64_t bytes, int64_t past) {
    for (int64_t used = 0; used < past || from.size() < 2; used += 2 * bytes)
      from.emplace_back(bytes), to.emplace_back(bytes);
  }
};

double copy_ms(cudaStream_t stream, int64_t bytes, int repetitions) {
  const Rotation rotation(bytes, 400 * kMiB);
  return time_on_stream(stream, repetitions, Host::kAhead, [&](int k) {
    const size_t at = static_cast<size_t>(k) % rotation.from.size();
    MUST(cudaMemcpyAsync(rotation.to[at].data(), rotation.from[at].data(), static_cast<size_t>(bytes),
                         cudaMemcpyDeviceToDevice, stream));
  });
}

/// `tensors` tensors of unequal size, `bytes` in all, that are apart in one buffer; and their places in a bucket.
struct Layout {
  std::vector<int64_t> counts, apart, packed;
  int64_t apart_bytes = 0, packed_bytes = 0;
  Layout(int tensors, int64_t bytes) {
    const int64_t mean = bytes / 4 / tensors;
    for (int t = 0; t < tensors; ++t) {
      counts.push_back(mean / 2 + mean * t / (tensors - 1));
      apart.push_back(apart_bytes);
      packed.push_back(packed_bytes);
      apart_bytes += (counts.back() * 4 / 512 + 2) * 512;
      packed_bytes += (counts.back() * 4 + 255) / 256 * 256;
    }
  }
  [[nodiscard]] std::vector<ddp_gpu_span> spans(const Buffer& tensors, const Buffer& bucket, bool pack) const {
    std::vector<ddp_gpu_span> all;
    for (size_t t = 0; t < counts.size(); ++t) {
      void* const one = tensors.data() + apart[t];
      void* const other = bucket.data() + packed[t];
      all.push_back({pack ? one : other, pack ? other : one, counts[t]});
    }
    return all;
  }
};

void measure_pack(Report& report, const Options& options, cudaStream_t stream, const char* size, int tensors, int64_t bytes,
                  double share) {
  const Layout layout(tensors, bytes);
  std::vector<Buffer> apart, buckets;
  for (int64_t used = 0; used < 400 * kMiB || apart.size() < 2; used += 2 * bytes)
    apart.emplace_back(layout.apart_bytes), buckets.emplace_back(layout.packed_bytes);
  const double copied = rate(bytes, copy_ms(stream, bytes, options.repetitions(100)));
  for (const bool pack : {true, false}) {
    std::vector<std::vector<ddp_gpu_span>> spans;
    for (size_t k = 0; k < apart.size(); ++k) spans.push_back(layout.spans(apart[k], buckets[k], pack));
    const double ms = time_on_stream(stream, options.repetitions(100), Host::kAhead, [&](int k) {
      const auto& list = spans[static_cast<size_t>(k) % spans.size()];
      GPU_CALL(move(list.data(), static_cast<int64_t>(list.size()), DDP_F32, DDP_F32, pack ? 0.5 : 1.0,
                    std::numeric_limits<double>::infinity(), nullptr, stream));
    });
    const std::string id = std::string(pack ? "pack." : "unpack.") + size;
    const double reached = rate(bytes, ms) / copied;
    char target[64], note[96];
    std::snprintf(target, sizeof target, "at least %.0f %% of a copy", 100 * share);
    std::snprintf(note, sizeof note, "%.1f us; a copy of as much: %.0f GB/s", 1e3 * ms, copied);
    report.add({id, std::string(pack ? "pack " : "unpack ") + size + ", " + std::to_string(tensors) + " tensors",
                100 * reached, "%", target, reached >= share, note});
  }
}

}  // namespace

void measure_copies(Report& report, const Options& options) {
  const cudaStream_t stream = new_stream();
  const double ms = copy_ms(stream, 256 * kMiB, options.repetitions(50));
  report.add({"copy.256MiB", "copy on the device, 256 MiB, read and written", rate(256 * kMiB, ms), "GB/s", "the yardstick",
              -1, ""});
  measure_pack(report, options, stream, "25MiB", 64, 25 * kMiB, 0.75);
  measure_pack(report, options, stream, "256MiB", 300, 256 * kMiB, 0.9);
  MUST(cudaStreamDestroy(stream));
}

}  // namespace ddp::bench
