// SPDX-License-Identifier: Apache-2.0
// Bytes that the kernels move: packing gradients into a bucket, and Adam, compared with a copy of the same run. Read and
// written bytes count. Each measurement rotates through more memory than the second-level cache has.

#include "gpu/experiments/experiments.hpp"

namespace ddp::experiments {
namespace {

using namespace ddp::test::card;

int64_t scaled(int64_t bytes) { return is_fake() ? bytes >> 8 : bytes; }

/// Median milliseconds of work(k); the host is ahead.
template <class Work>
double median_ms(const Stream& stream, const SlowWork& slow, int repetitions, Work work) {
  const Event begin, end;
  std::vector<double> all;
  for (int k = -3; k < repetitions; ++k) {
    slow.enqueue(stream.get(), 4);
    begin.record(stream.get());
    work(k + 3);
    end.record(stream.get());
    end.wait();
    if (k >= 0) all.push_back(end.ms_from(begin));
  }
  return median(all);
}

double rate(double bytes, double ms) { return bytes / ms * 1e-6; }

struct Bucket {
  Memory apart, packed;
  std::vector<ddp_gpu_span> pack;
  /// Tensors of half to one and a half of the mean size.
  Bucket(int tensors, int64_t bytes) : apart(kGpu, 2 * bytes + 1024 * tensors), packed(kGpu, 2 * bytes) {
    const int64_t mean = bytes / 4 / tensors;
    char *from = static_cast<char*>(apart.data()), *to = static_cast<char*>(packed.data());
    for (int t = 0; t < tensors; ++t) {
      const int64_t count = mean / 2 + mean * t / (tensors - 1);
      pack.push_back({from, to, count});
      from += (count * 4 / 512 + 2) * 512;
      to += (count * 4 + 255) / 256 * 256;
    }
  }
  [[nodiscard]] std::vector<ddp_gpu_span> unpack() const {
    std::vector<ddp_gpu_span> back = pack;
    for (ddp_gpu_span& span : back) std::swap(span.from, span.to);
    return back;
  }
};

double measure_copy(Report& report, const Stream& stream, const SlowWork& slow, int repetitions) {
  const int64_t bytes = scaled(int64_t{256} << 20);
  const Memory a(kGpu, bytes), b(kGpu, bytes);
  const double ms =
      median_ms(stream, slow, repetitions, [&](int) { GPU_CALL(copy(b.data(), a.data(), bytes, stream.get())); });
  const double copied = rate(2.0 * static_cast<double>(bytes), ms);
  report.figure("copy on the device, 256 MiB", copied, "GB/s", "the yardstick");
  return copied;
}

/// A copy of the bytes of these buckets, which take turns. GB/s.
double copy_of(const std::vector<Bucket>& buckets, int64_t bytes, const Stream& stream, const SlowWork& slow,
               int repetitions) {
  const double ms = median_ms(stream, slow, repetitions, [&](int k) {
    const Bucket& bucket = buckets[static_cast<size_t>(k) % buckets.size()];
    GPU_CALL(copy(bucket.packed.data(), bucket.apart.data(), bytes, stream.get()));
  });
  return rate(2.0 * static_cast<double>(bytes), ms);
}

void measure_pack(Report& report, const Stream& stream, const SlowWork& slow, int repetitions, int64_t mib, int tensors,
                  double share) {
  const int64_t bytes = scaled(mib << 20);
  std::vector<Bucket> buckets;
  const size_t sets = is_fake() ? 2 : static_cast<size_t>(std::max<int64_t>(2, 400 / (2 * mib) + 1));
  for (size_t k = 0; k < sets; ++k) buckets.emplace_back(tensors, bytes);
  const double copied = copy_of(buckets, bytes, stream, slow, repetitions);
  for (const bool pack : {true, false}) {
    std::vector<std::vector<ddp_gpu_span>> lists;
    for (const Bucket& bucket : buckets) lists.push_back(pack ? bucket.pack : bucket.unpack());
    double moved = 0;
    for (const ddp_gpu_span& span : lists[0]) moved += 8.0 * static_cast<double>(span.count);
    const double ms = median_ms(stream, slow, repetitions, [&](int k) {
      const auto& list = lists[static_cast<size_t>(k) % lists.size()];
      GPU_CALL(move(list.data(), static_cast<int64_t>(list.size()), DDP_F32, DDP_F32, pack ? 0.5 : 1.0,
                    std::numeric_limits<double>::infinity(), nullptr, stream.get()));
    });
    const std::string what =
        std::string(pack ? "pack " : "unpack ") + std::to_string(mib) + " MiB in " + std::to_string(tensors) + " tensors";
    char note[96];
    std::snprintf(note, sizeof note, "%.1f us, %.0f %% of the rate of a copy of as much", 1e3 * ms,
                  100 * rate(moved, ms) / copied);
    report.figure(what, rate(moved, ms), "GB/s", note);
    report.timed_verdict(what + ": at least " + std::to_string(static_cast<int>(100 * share)) + " % of a copy",
                         rate(moved, ms) >= share * copied);
  }
}

/// Value, gradient and two moments read, value and moments written: 28 bytes an element.
void measure_adam(Report& report, const Stream& stream, const SlowWork& slow, int repetitions, const char* what, int tensors,
                  int64_t elements, double share, double copied) {
  const int64_t each = scaled(elements / tensors * 4) / 4 / 64 * 64 + 64;
  const Memory values(kGpu, each * tensors * 4), grads(kGpu, each * tensors * 4), first(kGpu, each * tensors * 4),
      second(kGpu, each * tensors * 4);
  std::vector<ddp_gpu_update> updates;
  for (int t = 0; t < tensors; ++t) {
    const auto at = [&](const Memory& memory) { return static_cast<char*>(memory.data()) + 4 * each * t; };
    updates.push_back({at(values), at(grads), {at(first), at(second)}, nullptr, each, 0});
  }
  const ddp_gpu_adam_rule rule{1, 0.01, 0.9, 0.1, 0.999, 0.001, 1e-3, 1, 1e-8};
  const ddp_gpu_shape shape{1, std::numeric_limits<double>::infinity(), nullptr, 0};
  const double ms = median_ms(stream, slow, repetitions, [&](int) {
    GPU_CALL(adam(updates.data(), tensors, &rule, 1, DDP_F32, &shape, nullptr, stream.get()));
  });
  const double reached = rate(28.0 * static_cast<double>(each * tensors), ms);
  char note[96];
  std::snprintf(note, sizeof note, "%.3f ms, %.0f %% of the copy's rate", ms, 100 * reached / copied);
  report.figure(what, reached, "GB/s", note);
  if (share > 0)
    report.timed_verdict(std::string(what) + ": at least " + std::to_string(static_cast<int>(100 * share)) + " % of a copy",
                         reached >= share * copied);
}

}  // namespace

void measure_rates(Report& report, const Options& options) {
  need_devices(1);
  const Stream stream(kGpu);
  const SlowWork slow(kGpu);
  const int repetitions = options.repetitions(50);
  const double copied = measure_copy(report, stream, slow, repetitions);
  measure_pack(report, stream, slow, repetitions, 25, 64, 0.75);
  measure_pack(report, stream, slow, repetitions, 256, 300, 0.9);
  measure_adam(report, stream, slow, repetitions, "Adam, 124 M elements in 148 tensors", 148, 124'000'000, 0.9, copied);
  measure_adam(report, stream, slow, repetitions, "Adam, 10,000 tensors of 1,000 elements", 10'000, 10'000'000, 0, copied);
}

}  // namespace ddp::experiments
