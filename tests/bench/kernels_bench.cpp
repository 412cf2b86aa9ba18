// SPDX-License-Identifier: Apache-2.0
// The reduction loops on one thread, for each instruction set, compared with memcpy and loops written by hand for four F32
// inputs (plain and with non-temporal stores). Printed: GB/s of memory read and written by the loop's own account (n reads
// and n writes per element in place), median and best of the rounds. All take turns, round by round.
//
//   bench.kernels [rounds]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/dtype.hpp"
#include "device/cpu/arrays.hpp"
#include "device/cpu/reduce.hpp"

namespace {

using namespace ddp;

/// Arrays that begin at a page, as buckets do.
struct Buffers {
  static constexpr int64_t kPage = 4096;
  std::vector<std::byte> memory;
  std::vector<void*> at;

  Buffers(int32_t count, int64_t bytes) : memory(static_cast<size_t>(count * bytes + kPage)) {
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory.data()) % kPage);
    for (int32_t k = 0; k < count; ++k) at.push_back(memory.data() + (kPage - past) + k * bytes);
  }
};

struct Contender {
  std::string name;
  double bytes;  // moved by one run
  std::function<void()> run;
  std::string set = {};  // instruction set; empty: the one in use
  std::vector<double> rates = {};
};

double seconds(const std::function<void()>& run, int repeats) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void race(const std::string& title, std::vector<Contender> contenders, int rounds) {
  for (int round = -1; round < rounds; ++round)
    for (Contender& contender : contenders) {
      const int repeats = std::max(1, static_cast<int>(60e6 / contender.bytes));
      // Outside the measured time: in virtual machines the question what a machine has is slow.
      if (!contender.set.empty()) cpu::set_instruction_set(contender.set.c_str());
      const double rate = contender.bytes * repeats / seconds(contender.run, repeats) / 1e9;
      if (round >= 0) contender.rates.push_back(rate);
    }
  std::printf("%s\n", title.c_str());
  for (Contender& contender : contenders) {
    std::sort(contender.rates.begin(), contender.rates.end());
    std::printf("  %-28s %7.1f GB/s  (best %.1f)\n", contender.name.c_str(), contender.rates[contender.rates.size() / 2],
                contender.rates.back());
  }
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void by_hand(void* const* at, int64_t count) {
  auto *x = static_cast<float*>(at[0]), *y = static_cast<float*>(at[1]), *z = static_cast<float*>(at[2]),
       *w = static_cast<float*>(at[3]);
  const __m512 quarter = _mm512_set1_ps(0.25f);
  for (int64_t i = 0; i < count; i += 16) {
    const __m512 sum =
        _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(_mm512_load_ps(x + i), _mm512_load_ps(y + i)), _mm512_load_ps(z + i)),
                      _mm512_load_ps(w + i));
    const __m512 mean = _mm512_mul_ps(sum, quarter);
    _mm512_store_ps(x + i, mean);
    _mm512_store_ps(y + i, mean);
    _mm512_store_ps(z + i, mean);
    _mm512_store_ps(w + i, mean);
  }
}

__attribute__((target("avx512f"))) void by_hand_streaming(void* const* at, int64_t count) {
  auto *x = static_cast<float*>(at[0]), *y = static_cast<float*>(at[1]), *z = static_cast<float*>(at[2]),
       *w = static_cast<float*>(at[3]);
  const __m512 quarter = _mm512_set1_ps(0.25f);
  for (int64_t i = 0; i < count; i += 16) {
    const __m512 sum =
        _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(_mm512_load_ps(x + i), _mm512_load_ps(y + i)), _mm512_load_ps(z + i)),
                      _mm512_load_ps(w + i));
    const __m512 mean = _mm512_mul_ps(sum, quarter);
    _mm512_stream_ps(x + i, mean);
    _mm512_stream_ps(y + i, mean);
    _mm512_stream_ps(z + i, mean);
    _mm512_stream_ps(w + i, mean);
  }
  _mm_sfence();
}

void add_by_hand(std::vector<Contender>& contenders, Buffers& buffers, double moved, int64_t count) {
  if (!__builtin_cpu_supports("avx512f")) return;
  contenders.push_back({"by hand, AVX-512", moved, [&buffers, count] { by_hand(buffers.at.data(), count); }});
  contenders.push_back({"by hand, non-temporal", moved, [&buffers, count] { by_hand_streaming(buffers.at.data(), count); }});
}
#else
void add_by_hand(std::vector<Contender>&, Buffers&, double, int64_t) {}
#endif

std::vector<std::string> sets_here() {
  std::vector<std::string> sets;
  for (const char* set : {"portable", "neon", "avx2", "avx512"})
    if (cpu::set_instruction_set(set)) sets.emplace_back(set);
  return sets;
}

std::string kib(int64_t bytes) { return std::to_string(bytes / 1024) + " KiB"; }

void four_in_place(int64_t bytes, int rounds) {
  Buffers buffers(4, bytes);
  const int64_t count = bytes / 4;
  const double moved = 8.0 * static_cast<double>(bytes);
  std::vector<Contender> contenders;
  contenders.push_back({"memcpy", 2.0 * static_cast<double>(bytes),
                        [&buffers, bytes] { std::memcpy(buffers.at[0], buffers.at[1], static_cast<size_t>(bytes)); }});
  add_by_hand(contenders, buffers, moved, count);
  for (const std::string& set : sets_here())
    contenders.push_back({set, moved,
                          [&buffers, count] {
                            cpu::reduce({DDP_F32, DDP_AVERAGE, 4}, buffers.at.data(), 4, buffers.at.data(), 4, count);
                          },
                          set});
  race("mean of 4 F32 arrays of " + kib(bytes) + ", in place", std::move(contenders), rounds);
}

void by_inputs(int64_t bytes, bool in_place, int rounds) {
  Buffers buffers(17, bytes);
  std::vector<Contender> contenders;
  for (const int32_t inputs : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16}) {
    const int32_t outputs = in_place ? inputs : 1;
    contenders.push_back(
        {std::to_string(inputs) + " inputs", static_cast<double>(bytes * (inputs + outputs)), [=, &buffers] {
           cpu::reduce({DDP_F32, DDP_AVERAGE, inputs}, buffers.at.data(), inputs,
                       in_place ? buffers.at.data() : &buffers.at[16], outputs, bytes / 4);
         }});
  }
  race("mean of F32 arrays of " + kib(bytes) + (in_place ? ", in place" : ", to one more array"), std::move(contenders),
       rounds);
}

void by_dtype(int64_t bytes, int rounds) {
  Buffers buffers(4, bytes);
  std::vector<Contender> contenders;
  for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_I32, DDP_I64, DDP_U8})
    for (const ddp_reduce op : {DDP_SUM, DDP_AVERAGE, DDP_MAX})
      contenders.push_back(
          {std::string(dtype_name(dtype)) + (op == DDP_SUM   ? " sum"
                                             : op == DDP_MAX ? " max"
                                                             : " mean of 3"),
           8.0 * static_cast<double>(bytes), [=, &buffers] {
             cpu::reduce({dtype, op, 3}, buffers.at.data(), 4, buffers.at.data(), 4, bytes / dtype_size(dtype));
           }});
  race("4 arrays of " + kib(bytes) + ", in place, by type", std::move(contenders), rounds);
}

void one_array(int64_t bytes, int rounds) {
  Buffers buffers(2, bytes);
  void *x = buffers.at[0], *y = buffers.at[1];
  std::vector<Contender> contenders;
  const double size = static_cast<double>(bytes);
  for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16}) {
    const int64_t count = bytes / dtype_size(dtype);
    const std::string name = dtype_name(dtype);
    contenders.push_back({name + " scale", 2 * size, [=] { cpu::scale(dtype, x, count, 1.0); }});
    contenders.push_back({name + " sum of squares", size, [=] {
                            ExactSum sum;
                            cpu::add_norm_terms(dtype, x, count, 2, sum);
                          }});
    contenders.push_back({name + " largest", size, [=] { (void)cpu::largest_magnitude(dtype, x, count); }});
    contenders.push_back({name + " non-finite", size, [=] { (void)cpu::count_nonfinite(dtype, x, count); }});
  }
  for (const ddp_dtype dtype : {DDP_F16, DDP_BF16}) {
    contenders.push_back(
        {std::string("F32 to ") + dtype_name(dtype), 1.5 * size, [=] { cpu::convert(DDP_F32, x, dtype, y, bytes / 4); }});
    contenders.push_back(
        {std::string(dtype_name(dtype)) + " to F32", 1.5 * size, [=] { cpu::convert(dtype, x, DDP_F32, y, bytes / 4); }});
  }
  race("one array of " + kib(bytes), std::move(contenders), rounds);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 15;
  for (const int64_t bytes : {16 << 10, 128 << 10, 1 << 20, 25 << 20}) four_in_place(bytes, rounds);
  std::printf("from here on: %s\n", cpu::instruction_set());
  for (const int64_t bytes : {16 << 10, 1 << 20, 25 << 20}) {
    by_inputs(bytes, true, rounds);
    by_inputs(bytes, false, rounds);
  }
  for (const int64_t bytes : {16 << 10, 1 << 20}) by_dtype(bytes, rounds);
  for (const int64_t bytes : {64 << 10, 25 << 20}) one_array(bytes, rounds);
  return 0;
}
