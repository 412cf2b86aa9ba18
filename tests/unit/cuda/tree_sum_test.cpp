// SPDX-License-Identifier: Apache-2.0
// Sums over ranks, by the kernel on the host, compared with the CPU's loops, bit for bit: every type and operation, any
// number of ranks, weights, ranks that do not count, 16 bits on the wire.

#include "core/sum_tree.hpp"
#include "device/cpu/reduce.hpp"
#include "modules/cuda/kernels/joins.hpp"
#include "modules/cuda/kernels/launchers.hpp"
#include "support/check.hpp"
#include "unit/cuda/wild_array.hpp"

constexpr ddp_dtype kAll[] = {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_I32, DDP_I64, DDP_U8};
constexpr ddp_reduce kOperations[] = {DDP_SUM, DDP_AVERAGE, DDP_MIN, DDP_MAX};

std::vector<int32_t> group_sizes() {
  std::vector<int32_t> sizes;
  for (int32_t n = 1; n <= 17; ++n) sizes.push_back(n);
  sizes.insert(sizes.end(), {24, 33, 100});
  return sizes;
}

int32_t gpu_reduce(ddp_reduce op) { return op == DDP_MIN ? DDP_GPU_MIN : op == DDP_MAX ? DDP_GPU_MAX : DDP_GPU_SUM; }

/// The bits, a NaN's too.
void expect_bits(const WildArray& got, const void* wanted, const std::string& what) {
  const int64_t size = dtype_size(got.dtype());
  for (int64_t i = 0; i < got.count(); ++i)
    if (std::memcmp(static_cast<const char*>(got.data()) + i * size, static_cast<const char*>(wanted) + i * size,
                    static_cast<size_t>(size)) != 0)
      throw std::runtime_error(what + ": element " + std::to_string(i) + " differs");
}

/// The slices of all ranks where the kernel wants them.
struct Slices {
  WildArray parts, own, out;
  int64_t stride, count;
  int32_t rank;

  Slices(ddp_dtype dtype, int32_t ranks, int64_t count_, int64_t offset, uint64_t seed)
      : parts(dtype, ranks * (count_ + 5), offset),
        own(dtype, count_, offset),
        out(dtype, count_, offset),
        stride(count_ + 5),
        count(count_),
        rank(static_cast<int32_t>(seed % static_cast<uint64_t>(ranks))) {
    parts.fill(seed);
    const int64_t size = dtype_size(dtype);
    std::memcpy(own.data(), part(rank), static_cast<size_t>(count * size));
    std::memset(part(rank), 0xEE, static_cast<size_t>(count * size));
  }
  [[nodiscard]] char* part(int32_t r) { return static_cast<char*>(parts.data()) + r * stride * dtype_size(parts.dtype()); }
  [[nodiscard]] const void* slice(int32_t r) { return r == rank ? own.data() : part(r); }
  [[nodiscard]] ddp_gpu_tree tree(ddp_reduce op, int32_t ranks) {
    ddp_gpu_tree tree{};
    tree.parts = parts.data();
    tree.own = own.data();
    tree.out = out.data();
    tree.stride = stride;
    tree.count = count;
    tree.rank = rank;
    tree.dtype = parts.dtype();
    tree.reduce = gpu_reduce(op);
    tree.ranks = ranks;
    tree.divisor = op == DDP_AVERAGE ? ranks : 1;
    return tree;
  }
};

std::string name_of(ddp_dtype dtype, ddp_reduce op, int32_t ranks) {
  return std::string(dtype_name(dtype)) + ", op " + std::to_string(op) + ", " + std::to_string(ranks) + " ranks";
}

ddp_case(plain_sums_have_the_cpus_bits) {
  for (const int32_t ranks : group_sizes())
    for (const ddp_dtype dtype : kAll)
      for (const ddp_reduce op : kOperations)
        for (const int64_t count : {int64_t{1}, int64_t{131}, int64_t{2048 + 3}}) {
          Slices slices(dtype, ranks, count, count % 2, static_cast<uint64_t>(ranks * 31 + count));
          std::vector<const void*> in;
          for (int32_t r = 0; r < ranks; ++r) in.push_back(slices.slice(r));
          WildArray wanted(dtype, count);
          void* const to = wanted.data();
          cpu::reduce(cpu::ReduceRule{dtype, op, ranks}, in.data(), ranks, &to, 1, count);
          const ddp_gpu_tree tree = slices.tree(op, ranks);
          expect_equal(cuda::tree_sum(&tree, nullptr, nullptr), 0, "code");
          expect_bits(slices.out, wanted.data(), name_of(dtype, op, ranks));
        }
}

/// A rank that does not count: its slice is -0.0, and its weight 0.
ddp_case(weighted_sums_have_the_cpus_bits) {
  constexpr int64_t kCount = 700;
  for (const int32_t ranks : group_sizes())
    for (const ddp_dtype dtype : kFloats)
      for (const ddp_reduce op : {DDP_SUM, DDP_AVERAGE}) {
        Slices slices(dtype, ranks, kCount, 0, static_cast<uint64_t>(ranks));
        std::vector<const void*> in;
        std::vector<double> weights;
        for (int32_t r = 0; r < ranks; ++r) {
          const bool counts = ranks == 1 || (r * 7 + 3) % 5 != 0;
          in.push_back(counts ? slices.slice(r) : nullptr);
          weights.push_back(counts ? 0.3 + 1.7 * r : 0);
        }
        cpu::ReduceRule rule{dtype, op, ranks, true};
        rule.weight_sum = tree_sum(
            0, ranks, [&](int64_t r) { return weights[static_cast<size_t>(r)]; }, [](double a, double b) { return a + b; });
        WildArray wanted(dtype, kCount);
        void* const to = wanted.data();
        cpu::reduce(rule, in.data(), ranks, &to, 1, kCount, weights.data());
        const WildArray zeros(dtype, kCount);
        for (int32_t r = 0; r < ranks; ++r) {
          if (in[static_cast<size_t>(r)] != nullptr) continue;
          const ddp_gpu_span span{const_cast<void*>(zeros.data()), const_cast<void*>(slices.slice(r)), kCount};
          expect_equal(cuda::move_quotient(&span, 1, dtype, dtype, -1, 1, nullptr, nullptr), 0, "code");
        }
        ddp_gpu_tree tree = slices.tree(op, ranks);
        tree.divisor = 1;
        tree.weights = weights.data();
        tree.by_weight = op == DDP_AVERAGE ? 1 : 0;
        expect_equal(cuda::tree_sum(&tree, nullptr, nullptr), 0, "code");
        expect_bits(slices.out, wanted.data(), name_of(dtype, op, ranks));
      }
}

ddp_case(sums_of_16_bit_terms_have_the_cpus_bits) {
  constexpr int64_t kCount = 500;
  for (const int32_t ranks : group_sizes())
    for (const ddp_dtype dtype : {DDP_F32, DDP_F64})
      for (const ddp_dtype wire : {DDP_F16, DDP_BF16})
        for (const bool weighted : {false, true}) {
          std::vector<WildArray> values;
          std::vector<const void*> in;
          std::vector<double> weights;
          for (int32_t r = 0; r < ranks; ++r) {
            values.emplace_back(dtype, kCount).fill(static_cast<uint64_t>(r * 13 + ranks));
            weights.push_back(weighted ? 0.5 + r : 1);
          }
          for (const WildArray& each : values) in.push_back(each.data());
          cpu::ReduceRule rule{dtype, DDP_AVERAGE, ranks};
          rule.wire = wire;
          WildArray wanted(dtype, kCount), got(dtype, kCount);
          void* const to = wanted.data();
          cpu::reduce(rule, in.data(), ranks, &to, 1, kCount, weighted ? weights.data() : nullptr);
          Slices slices(wire, ranks, kCount, 0, static_cast<uint64_t>(ranks));
          for (int32_t r = 0; r < ranks; ++r) {
            const ddp_gpu_span term{values[static_cast<size_t>(r)].data(), const_cast<void*>(slices.slice(r)), kCount};
            expect_equal(
                cuda::move_quotient(&term, 1, dtype, wire, weights[static_cast<size_t>(r)], ranks, nullptr, nullptr), 0,
                "code");
          }
          ddp_gpu_tree tree = slices.tree(DDP_SUM, ranks);
          tree.rounds_nodes = 1;
          expect_equal(cuda::tree_sum(&tree, nullptr, nullptr), 0, "code");
          const ddp_gpu_span back{slices.out.data(), got.data(), kCount};
          expect_equal(cuda::move_quotient(&back, 1, wire, dtype, 1, 1, nullptr, nullptr), 0, "code");
          expect_bits(got, wanted.data(), name_of(dtype, DDP_AVERAGE, ranks) + " as " + dtype_name(wire));
        }
}

ddp_case(the_result_may_lie_over_the_own_slice_and_the_stop_word_is_looked_at) {
  constexpr int32_t kRanks = 5;
  for (const int64_t count : odd_lengths()) {
    Slices slices(DDP_F32, kRanks, count, 1, 9);
    ddp_gpu_tree tree = slices.tree(DDP_AVERAGE, kRanks);
    expect_equal(cuda::tree_sum(&tree, nullptr, nullptr), 0, "code");
    const WildArray before(slices.own);
    tree.out = slices.own.data();
    const uint32_t stop = 1;
    expect_equal(cuda::tree_sum(&tree, &stop, nullptr), 0, "code");
    expect_bits(slices.own, before.data(), "stopped");
    expect_equal(cuda::tree_sum(&tree, nullptr, nullptr), 0, "code");
    expect_bits(slices.own, slices.out.data(), "over its own slice");
  }
}

ddp_case(wrong_arguments_are_refused) {
  Slices slices(DDP_F32, 2, 4, 0, 1);
  const auto refused = [&](auto change) {
    ddp_gpu_tree tree = slices.tree(DDP_SUM, 2);
    change(tree);
    return cuda::tree_sum(&tree, nullptr, nullptr) != 0;
  };
  expect(!refused([](ddp_gpu_tree&) {}), "nothing wrong");
  expect(refused([](ddp_gpu_tree& tree) { tree.dtype = DDP_C64; }), "complex");
  expect(refused([](ddp_gpu_tree& tree) { tree.reduce = 1; }), "no reduction");
  expect(refused([](ddp_gpu_tree& tree) { tree.ranks = 0; }), "no rank");
  expect(refused([](ddp_gpu_tree& tree) { tree.ranks = cuda::kMostLeaves + 1; }), "too many ranks");
  expect(refused([](ddp_gpu_tree& tree) { tree.rounds_nodes = 1; }), "F32 has no 16 bits");
  expect(refused([](ddp_gpu_tree& tree) { tree.by_weight = 1; }), "no weights");
}

/// More blocks of leaves than the counter has levels for one.
ddp_case(a_full_tree_is_summed) {
  using Row = cuda::Row<float, 1>;
  for (const int32_t leaves : {cuda::kMostLeaves, cuda::kMostLeaves - 3, cuda::kMostLeaves / 2 + 8}) {
    const auto leaf = [](int64_t at) { return 1.0F / static_cast<float>(at + 3); };
    const auto load = [&](int32_t first, Row(&rows)[cuda::kBlock]) {
      for (int k = 0; k < cuda::kBlock; ++k) rows[k].element[0] = first + k < leaves ? leaf(first + k) : -0.0F;
    };
    const float wanted = tree_sum(0, leaves, leaf, [](float a, float b) { return a + b; });
    expect_equal((cuda::sum_rows<float, 1, true>(leaves, load, cuda::Add{}).element[0]), wanted, "sum");
  }
}

/// Means of whole numbers: products with a rounded reciprocal differ in the last bit of some.
ddp_case(a_quotient_is_correctly_rounded) {
  WildArray numbers(DDP_F32, 2000), got(DDP_F32, 2000), product(DDP_F32, 2000);
  for (int64_t i = 0; i < numbers.count(); ++i) numbers.as<float>()[i] = static_cast<float>(i);
  const ddp_gpu_span divided{numbers.data(), got.data(), numbers.count()};
  const ddp_gpu_span multiplied{numbers.data(), product.data(), numbers.count()};
  expect_equal(cuda::move_quotient(&divided, 1, DDP_F32, DDP_F32, 1, 3, nullptr, nullptr), 0, "code");
  expect_equal(cuda::move(&multiplied, 1, DDP_F32, DDP_F32, 1.0 / 3, kInfinity, nullptr, nullptr), 0, "code");
  int64_t different = 0;
  for (int64_t i = 0; i < numbers.count(); ++i) {
    expect_equal(got.as<float>()[i], static_cast<float>(i) / 3.0F, "a third");
    different += got.as<float>()[i] != product.as<float>()[i] ? 1 : 0;
  }
  expect(different > 100, "products are others");
}
