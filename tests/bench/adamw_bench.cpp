// SPDX-License-Identifier: Apache-2.0
// AdamW over flat arrays, one thread: milliseconds a step and bytes moved per second (28 an F32 parameter: value and both
// moments are read and written, the gradient is read), compared with a loop that moves the same bytes and computes almost
// nothing, and with the naive scalar loop. All take turns, round by round; printed are median, best and worst.
//
//   bench.adamw [rounds [million parameters]]
//   bench.adamw figures      only F32, with the widest instructions, and the loop: "T 0 <adamw | loop> <milliseconds> ..."
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/dtype.hpp"
#include "device/cpu/reduce.hpp"
#include "device/cpu/update_kernels.hpp"
#include "os/memory.hpp"

namespace {

using namespace ddp;

/// As in a training: value and gradient are the program's, the moments are in an array of the library.
struct Arrays {
  std::vector<std::byte> value, grad;
  os::LargeArray moments;
  std::byte* exp_avg = nullptr;
  std::byte* exp_avg_sq = nullptr;
  ddp_dtype dtype;
  int64_t count;

  Arrays(ddp_dtype of, int64_t elements) : dtype(of), count(elements) {
    value.resize(static_cast<size_t>(count * dtype_size(of)), std::byte{0x3c});
    grad.resize(value.size(), std::byte{0x3a});
    const size_t bytes = moment_bytes();
    moments = os::LargeArray(2 * bytes, "moments");
    std::memset(moments.data(), 0, 2 * bytes);
    exp_avg = moments.data();
    exp_avg_sq = exp_avg + bytes;
  }
  [[nodiscard]] size_t moment_bytes() const { return static_cast<size_t>(count * dtype_size(cpu::moment_dtype(dtype))); }
  [[nodiscard]] double bytes() const {
    return 3.0 * static_cast<double>(value.size()) + 4.0 * static_cast<double>(moment_bytes());
  }
};

const cpu::AdamStep kStep{1 - 1e-6, 0, 0.9, 0.1, 0.999, 0.001, 1e-4, 1.0, 1e-8};

void naive_adamw(Arrays& arrays) {
  auto* const p = reinterpret_cast<float*>(arrays.value.data());
  const auto* const g = reinterpret_cast<const float*>(arrays.grad.data());
  auto* const m = reinterpret_cast<float*>(arrays.exp_avg);
  auto* const v = reinterpret_cast<float*>(arrays.exp_avg_sq);
  for (int64_t i = 0; i < arrays.count; ++i) {
    m[i] = 0.9F * m[i] + 0.1F * g[i];
    v[i] = 0.999F * v[i] + 0.001F * g[i] * g[i];
    p[i] = p[i] * 0.999999F - 1e-4F * m[i] / (std::sqrt(v[i]) + 1e-8F);
  }
}

/// The same traffic, one addition a word.
void touch(Arrays& arrays) {
  auto* const p = reinterpret_cast<uint64_t*>(arrays.value.data());
  const auto* const g = reinterpret_cast<const uint64_t*>(arrays.grad.data());
  auto* const m = reinterpret_cast<uint64_t*>(arrays.exp_avg);
  auto* const v = reinterpret_cast<uint64_t*>(arrays.exp_avg_sq);
  const size_t words = arrays.value.size() / sizeof *p;
  for (size_t i = 0; i < words; ++i) {
    p[i] += g[i];
    m[i] += 1;
    v[i] += 1;
  }
}

struct Contender {
  std::string name;
  Arrays* arrays;
  std::function<void()> run;
  std::vector<double> ms;
};

void report(Contender& contender) {
  std::sort(contender.ms.begin(), contender.ms.end());
  const double median = contender.ms[contender.ms.size() / 2];
  std::printf("%-18s %8.2f ms [%7.2f - %7.2f] %6.1f GB/s\n", contender.name.c_str(), median, contender.ms.front(),
              contender.ms.back(), contender.arrays->bytes() / median / 1e6);
}

}  // namespace

void print_figures(const char* name, const Contender& contender) {
  std::printf("T 0 %s", name);
  for (const double ms : contender.ms) std::printf(" %.3f", ms);
  std::printf("\n");
}

int main(int argc, char** argv) {
  const bool figures = argc > 1 && std::string(argv[1]) == "figures";
  const int rounds = argc > 1 && !figures ? std::atoi(argv[1]) : 15;
  const double millions = argc > 2 ? std::atof(argv[2]) : 25.1;
  const auto count = static_cast<int64_t>(millions * 1e6);
  Arrays single(DDP_F32, count);
  Arrays brain(DDP_BF16, count);
  std::vector<Contender> contenders;
  const auto step = [](Arrays& arrays) {
    cpu::adam_update(kStep, arrays.dtype, arrays.value.data(), arrays.grad.data(), arrays.exp_avg, arrays.exp_avg_sq,
                     arrays.count);
  };
  for (const char* set : {"avx512", "avx2", "neon", "portable"}) {
    if ((figures && !contenders.empty()) || !cpu::set_instruction_set(set)) continue;
    const auto chosen = [set, step](Arrays& arrays) {
      (void)cpu::set_instruction_set(set);
      step(arrays);
    };
    contenders.push_back({std::string("F32 ") + set, &single, [&single, chosen] { chosen(single); }, {}});
    if (figures) continue;
    contenders.push_back({std::string("BF16 ") + set, &brain, [&brain, chosen] { chosen(brain); }, {}});
  }
  if (!figures) contenders.push_back({"F32 naive loop", &single, [&single] { naive_adamw(single); }, {}});
  contenders.push_back({"F32 only touched", &single, [&single] { touch(single); }, {}});
  for (int round = -1; round < rounds; ++round)  // the first one pays for fresh pages
    for (Contender& contender : contenders) {
      const auto start = std::chrono::steady_clock::now();
      contender.run();
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
      if (round >= 0) contender.ms.push_back(took.count());
    }
  if (figures) {
    print_figures("adamw", contenders.front());
    print_figures("loop", contenders.back());
    return 0;
  }
  std::printf("AdamW, %.1f million parameters, one thread, %d rounds: median [best - worst]\n", millions, rounds);
  for (Contender& contender : contenders) report(contender);
}
