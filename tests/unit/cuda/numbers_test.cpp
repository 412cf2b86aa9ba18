// SPDX-License-Identifier: Apache-2.0
// Conversions and shaping, by the kernel `move` on the host, compared with the CPU's loops.
#include "modules/cuda/kernels/numbers.hpp"

#include "device/cpu/arrays.hpp"
#include "modules/cuda/kernels/launchers.hpp"
#include "support/check.hpp"
#include "unit/cuda/wild_array.hpp"

/// The wide type first, then once to the target.
WildArray moved_by_cpu(const WildArray& from, ddp_dtype to, double factor, double limit) {
  WildArray wide(from.dtype() == DDP_F64 || to == DDP_F64 ? DDP_F64 : DDP_F32, from.count());
  WildArray out(to, from.count());
  cpu::convert(from.dtype(), from.data(), wide.dtype(), wide.data(), from.count());
  cpu::scale(wide.dtype(), wide.data(), wide.count(), factor);
  cpu::limit(wide.dtype(), wide.data(), wide.count(), limit);
  cpu::convert(wide.dtype(), wide.data(), to, out.data(), out.count());
  return out;
}

void move(const std::vector<ddp_gpu_span>& spans, ddp_dtype from, ddp_dtype to, double factor, double limit,
          const uint32_t* stop = nullptr) {
  expect_equal(cuda::move(spans.data(), static_cast<int64_t>(spans.size()), from, to, factor, limit, stop, nullptr), 0,
               "code");
}

ddp_case(every_pair_of_types_has_the_cpus_bits) {
  for (const ddp_dtype from : kFloats)
    for (const ddp_dtype to : kFloats)
      for (const auto& [factor, limit] : {std::pair{1.0, kInfinity}, {1.0 / 3, kInfinity}, {0.7, 1.25}})
        for (const int64_t offset : {1, 3}) {
          std::vector<WildArray> sources, targets;
          std::vector<ddp_gpu_span> spans;
          for (const int64_t count : odd_lengths()) {
            sources.emplace_back(from, count, offset).fill(static_cast<uint64_t>(count * 31 + from));
            targets.emplace_back(to, count, offset == 3 ? 0 : offset);
          }
          for (size_t k = 0; k < sources.size(); ++k)
            spans.push_back({sources[k].data(), targets[k].data(), sources[k].count()});
          move(spans, from, to, factor, limit);
          for (size_t k = 0; k < sources.size(); ++k)
            targets[k].expect_same(moved_by_cpu(sources[k], to, factor, limit), std::string("from ") + dtype_name(from));
        }
}

ddp_case(a_copy_keeps_every_bit) {
  for (const ddp_dtype dtype : kFloats) {
    WildArray source(dtype, 40000, 1), target(dtype, 40000, 1);
    source.fill(5);
    move({{source.data(), target.data(), source.count()}}, dtype, dtype, 1, kInfinity);
    expect(std::memcmp(source.data(), target.data(), static_cast<size_t>(source.bytes())) == 0, "the same bits, NaNs too");
  }
}

ddp_case(from_nowhere_come_zeros) {
  for (const ddp_dtype dtype : kFloats)
    for (const double factor : {1.0, 0.5}) {
      WildArray target(dtype, 20001, 1);
      target.fill(6);
      move({{nullptr, target.data(), target.count()}}, dtype, dtype, factor, kInfinity);
      target.expect_same(WildArray(dtype, 20001), "zeros");
    }
}

ddp_case(an_array_may_be_moved_onto_itself) {
  for (const ddp_dtype dtype : kFloats) {
    WildArray array(dtype, 30011, 1);
    array.fill(7);
    const WildArray wanted = moved_by_cpu(array, dtype, 0.3, 2);
    move({{array.data(), array.data(), array.count()}}, dtype, dtype, 0.3, 2);
    array.expect_same(wanted, "in place");
  }
}

ddp_case(any_number_of_spans_is_moved) {
  for (const size_t count : {1U, 164U, 165U, 166U, 1364U, 1365U, 3000U}) {
    WildArray source(DDP_F32, 4000), target(DDP_BF16, 4000);
    source.fill(8);
    std::vector<ddp_gpu_span> spans;
    for (size_t k = 0; k < count; ++k)
      spans.push_back({source.as<float>() + k, target.as<uint16_t>() + k, k % 3 == 1 ? 0 : 1});
    WildArray wanted = moved_by_cpu(source, DDP_BF16, 0.5, kInfinity);
    for (size_t k = 0; k < 4000; ++k)
      if (k >= count || k % 3 == 1) wanted.as<uint16_t>()[k] = 0;
    move(spans, DDP_F32, DDP_BF16, 0.5, kInfinity);
    target.expect_same(wanted, std::to_string(count) + " spans");
  }
}

ddp_case(the_stop_word_stops_it) {
  WildArray source(DDP_F32, 5000), target(DDP_F32, 5000);
  source.fill(9);
  uint32_t stop = 1;
  for (const double factor : {1.0, 2.0})
    move({{source.data(), target.data(), source.count()}}, DDP_F32, DDP_F32, factor, kInfinity, &stop);
  target.expect_same(WildArray(DDP_F32, 5000), "nothing moved");
  stop = 0;
  move({{source.data(), target.data(), source.count()}}, DDP_F32, DDP_F32, 1, kInfinity, &stop);
  target.expect_same(source, "moved");
}

ddp_case(bytes_are_exchanged) {
  for (const auto& [a_offset, b_offset] : {std::pair<int64_t, int64_t>{0, 0}, {2, 2}, {2, 0}, {1, 3}, {1, 0}})
    for (const int64_t count : odd_lengths()) {
      WildArray a(DDP_U8, 2 * count, a_offset * 2), b(DDP_U8, 2 * count, b_offset * 2);
      for (int64_t i = 0; i < 2 * count; ++i)
        a.as<uint8_t>()[i] = static_cast<uint8_t>(i * 7), b.as<uint8_t>()[i] = static_cast<uint8_t>(i * 11 + 1);
      const WildArray was_a = a, was_b = b;
      const ddp_gpu_span span{a.data(), b.data(), 2 * count};
      expect_equal(cuda::exchange(&span, 1, nullptr), 0, "code");
      expect(std::memcmp(a.data(), was_b.data(), static_cast<size_t>(2 * count)) == 0, "a is b");
      expect(std::memcmp(b.data(), was_a.data(), static_cast<size_t>(2 * count)) == 0, "b is a");
    }
}

ddp_case(bytes_are_copied) {
  for (const auto& [a_offset, b_offset] : {std::pair<int64_t, int64_t>{0, 0}, {2, 2}, {2, 0}, {1, 3}, {1, 0}})
    for (const int64_t count : odd_lengths()) {
      WildArray a(DDP_U8, 2 * count, a_offset * 2), b(DDP_U8, 2 * count, b_offset * 2);
      for (int64_t i = 0; i < 2 * count; ++i) a.as<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
      const WildArray was_a = a, was_b = b;
      const ddp_gpu_span span{a.data(), b.data(), 2 * count};
      uint32_t stop = 1;
      expect_equal(cuda::copy_bytes(&span, 1, &stop, nullptr), 0, "code");
      b.expect_same(was_b, "stopped");
      stop = 0;
      expect_equal(cuda::copy_bytes(&span, 1, &stop, nullptr), 0, "code");
      a.expect_same(was_a, "the source");
      expect(std::memcmp(b.data(), was_a.data(), static_cast<size_t>(2 * count)) == 0, "b is a");
    }
}
