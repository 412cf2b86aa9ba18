// SPDX-License-Identifier: Apache-2.0
// What the parts of bench.gpu share: rows of a report, medians over events, memory that is rotated past the second-level
// cache.
//
// Method: every figure is the median of many repetitions after a warm-up, measured with events on the stream (host costs:
// with the host's clock around one call). Data are random. What is read or written is rotated through more memory than the
// cache holds. The copy rate measured in the same run is the yardstick. tests/bench/HISTORY.md has the targets.
#pragma once

#include <cuda_runtime.h>
#include <ddp/experimental.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace ddp::bench {

/// Both end the program with a sentence if the call failed.
void must(cudaError_t error, const char* call);
void must(ddp_status status, const char* call);
#define MUST(call) ddp::bench::must((call), #call)

struct Row {
  std::string id, what;
  double value;
  std::string unit, target;
  int met;  // 1 yes, 0 no, -1 nothing to compare with here
  std::string note;
};

class Report {
 public:
  explicit Report(std::string file) : file_(std::move(file)) {}
  /// Prints the row and writes the whole file anew, so that its results stay if the program is killed.
  void add(const Row& row);
  [[nodiscard]] double value(const std::string& id) const;

 private:
  void write() const;
  std::string file_;
  std::vector<Row> rows_;
};

struct Options {
  bool quick = false;
  [[nodiscard]] int repetitions(int usual) const { return quick ? std::max(usual / 5, 10) : usual; }
};

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}
inline double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}
inline double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A pair of events.
class Stopwatch {
 public:
  Stopwatch();
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  void start(cudaStream_t stream) { MUST(cudaEventRecord(begin_, stream)); }
  void stop(cudaStream_t stream) { MUST(cudaEventRecord(end_, stream)); }
  /// Milliseconds; waits for the end.
  [[nodiscard]] double ms() const;

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Median milliseconds of work(k), k counting up, on the stream. With kAhead the stream is kept busy while the host
/// enqueues, so that the host's time for that is not part of the figure.
enum class Host { kCounts, kAhead };
double time_on_stream(cudaStream_t stream, int repetitions, Host host, const std::function<void(int)>& work);

/// Device memory filled with random numbers (floats between -1 and 1).
class Buffer {
 public:
  explicit Buffer(int64_t bytes);
  Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr; }
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer();
  [[nodiscard]] char* data() const { return static_cast<char*>(data_); }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// A non-blocking stream.
cudaStream_t new_stream();

ddp_tensor on_gpu(void* data, int64_t count);
ddp_group* alone();

// The parts. The table of the module is device/gpu/gpu_abi.h's.
void measure_copies(Report& report, const Options& options);
void measure_updates(Report& report, const Options& options);
void measure_steps(Report& report, const Options& options);
void measure_host(Report& report, const Options& options);
void measure_overlap(Report& report, const Options& options);

}  // namespace ddp::bench
