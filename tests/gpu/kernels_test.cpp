// SPDX-License-Identifier: Apache-2.0
// The kernels of the module that move, sum and compare, called through its table as the library calls them, compared with
// the CPU's loops: the same bits for every dtype, length, alignment and number of spans. A NaN is a NaN, whatever its
// payload.
#include "device/cpu/arrays.hpp"
#include "device/cpu/reduce.hpp"
#include "gpu/support/kernel_arrays.hpp"

using namespace ddp::test;

namespace {

double limited(double x, double limit) { return x > limit ? limit : x < -limit ? -limit : x; }

/// Rounded from F64 to the type in one step.
void set_once(ddp_dtype dtype, void* array, size_t i, double number) {
  if (dtype != DDP_F16 && dtype != DDP_BF16) return set_element(dtype, array, i, number);
  const uint16_t bits = dtype == DDP_F16 ? double_to_half(number) : double_to_bfloat(number);
  std::memcpy(static_cast<char*>(array) + 2 * i, &bits, 2);
}

/// What `move` does to one element.
void move_one(ddp_dtype from, const void* source, ddp_dtype to, void* target, size_t i, double factor, double limit) {
  const double x = source == nullptr ? 0 : get_element(from, source, i);
  if (from == DDP_F64 || to == DDP_F64) return set_once(to, target, i, limited(x * factor, limit));
  const float product = static_cast<float>(x) * static_cast<float>(factor), most = static_cast<float>(limit);
  set_element(to, target, i, static_cast<double>(product > most ? most : product < -most ? -most : product));
}

ddp_case(move_converts_scales_and_limits) {
  const card::Stream stream(kGpu);
  for (const ddp_dtype from : kFloats)
    for (const ddp_dtype to : kFloats)
      for (const auto& [factor, limit] : {std::pair{1.0, kInfinity}, {1.0 / 3, kInfinity}, {0.7, 1.25}})
        for (const int64_t offset : {0, 1}) {
          Arrays source(from, all_lengths(from, 1, true), offset);
          std::vector<std::string> wanted, empty;
          for (const std::string& host : source.host) {
            const size_t count = host.size() / static_cast<size_t>(dtype_size(from));
            empty.emplace_back(count * static_cast<size_t>(dtype_size(to)), '\0');
            wanted.push_back(empty.back());
            for (size_t i = 0; i < count; ++i) move_one(from, host.data(), to, wanted.back().data(), i, factor, limit);
          }
          Arrays target(to, empty, 1 - offset);
          std::vector<ddp_gpu_span> spans;
          for (size_t k = 0; k < wanted.size(); ++k) spans.push_back({source.at(k), target.at(k), source.count(k)});
          GPU_CALL(move(spans.data(), static_cast<int64_t>(spans.size()), from, to, factor, limit, nullptr, stream.get()));
          stream.wait();
          const auto got = target.read();
          for (size_t k = 0; k < got.size(); ++k)
            expect_same(to, got[k], wanted[k], std::string("moved from ") + dtype_name(from));
        }
}

ddp_case(move_works_in_place_and_writes_zeros) {
  const card::Stream stream(kGpu);
  for (const ddp_dtype dtype : kFloats) {
    Arrays arrays(dtype, all_lengths(dtype, 3), 1);
    auto wanted = arrays.host;
    std::vector<ddp_gpu_span> spans;
    for (size_t k = 0; k < wanted.size(); ++k) {
      const bool zero = k % 2 == 0;
      spans.push_back({zero ? nullptr : arrays.at(k), arrays.at(k), arrays.count(k)});
      if (zero)
        wanted[k].assign(wanted[k].size(), '\0');
      else
        cpu::scale(dtype, wanted[k].data(), arrays.count(k), 0.3);
    }
    GPU_CALL(move(spans.data(), static_cast<int64_t>(spans.size()), dtype, dtype, 0.3, kInfinity, nullptr, stream.get()));
    stream.wait();
    const auto got = arrays.read();
    for (size_t k = 0; k < got.size(); ++k) expect_same(dtype, got[k], wanted[k], "in place");
  }
}

ddp_case(thousands_of_spans_are_all_done) {
  const card::Stream stream(kGpu);
  std::vector<std::string> data;
  for (int64_t k = 0; k < 5000; ++k) data.push_back(numbers(DDP_F32, 1 + k % 7, static_cast<uint64_t>(k)));
  Arrays source(DDP_F32, data, 0);
  for (std::string& array : data) array.assign(array.size(), '\0');
  Arrays target(DDP_F32, data, 0);
  std::vector<ddp_gpu_span> spans;
  for (size_t k = 0; k < data.size(); ++k) spans.push_back({source.at(k), target.at(k), source.count(k)});
  GPU_CALL(move(spans.data(), static_cast<int64_t>(spans.size()), DDP_F32, DDP_F32, 1, kInfinity, nullptr, stream.get()));
  stream.wait();
  expect(target.read() == source.host, "all spans were moved");
}

ddp_case(exchange_swaps_bytes) {
  const card::Stream stream(kGpu);
  Arrays a(DDP_F16, all_lengths(DDP_F16, 5), 1), b(DDP_F16, all_lengths(DDP_F16, 6), 0);
  std::vector<ddp_gpu_span> spans;
  for (size_t k = 0; k < a.host.size(); ++k) spans.push_back({a.at(k), b.at(k), a.count(k) * 2});
  GPU_CALL(exchange(spans.data(), static_cast<int64_t>(spans.size()), stream.get()));
  stream.wait();
  expect(a.read() == b.host && b.read() == a.host, "they were swapped");
}

ddp_case(norms_have_the_bits_of_the_cpu) {
  const card::Stream stream(kGpu);
  for (const ddp_dtype dtype : kFloats)
    for (const int32_t p : {1, 2})
      for (const bool specials : {false, true}) {
        Arrays arrays(dtype, all_lengths(dtype, 21, specials), 0);
        const card::Memory words(kGpu, static_cast<int64_t>(ExactSum::kWords * 8));
        ExactSum wanted, got;
        std::vector<ddp_gpu_span> spans;
        for (size_t k = 0; k < arrays.host.size(); ++k) {
          spans.push_back({arrays.at(k), nullptr, arrays.count(k)});
          cpu::add_norm_terms(dtype, arrays.host[k].data(), arrays.count(k), p, wanted);
        }
        GPU_CALL(add_norm_terms(spans.data(), static_cast<int64_t>(spans.size()), dtype, p,
                                static_cast<int64_t*>(words.data()), stream.get()));
        stream.wait();
        const std::string bytes = words.read();
        std::memcpy(got.words().data(), bytes.data(), bytes.size());
        expect_same(DDP_F64, encoded_double(got.value()), encoded_double(wanted.value()),
                    "norm of order " + std::to_string(p));
        expect_equal(got.all_finite(), wanted.all_finite(), "are all finite");
      }
}

ddp_case(the_largest_magnitude_is_found) {
  const card::Stream stream(kGpu);
  for (const ddp_dtype dtype : kFloats)
    for (const bool specials : {false, true}) {
      Arrays arrays(dtype, all_lengths(dtype, 31, specials), 1);
      const card::Memory bits(kGpu, 8);
      double wanted = 0;
      std::vector<ddp_gpu_span> spans;
      for (size_t k = 0; k < arrays.host.size(); ++k) {
        spans.push_back({arrays.at(k), nullptr, arrays.count(k)});
        const double most = cpu::largest_magnitude(dtype, arrays.host[k].data(), arrays.count(k));
        wanted = std::isnan(wanted) || most < wanted ? wanted : most;
      }
      GPU_CALL(largest(spans.data(), static_cast<int64_t>(spans.size()), dtype, static_cast<uint64_t*>(bits.data()),
                       stream.get()));
      stream.wait();
      expect_same(DDP_F64, bits.read(), encoded_double(wanted), "the largest magnitude");
    }
}

ddp_case(a_decision_is_that_of_the_policy) {
  const card::Stream stream(kGpu);
  const card::Memory words(kGpu, static_cast<int64_t>(ExactSum::kWords * 8)), gate(kGpu, sizeof(ddp_gpu_gate));
  for (const double square : {0.0, 0.3, 16.0, 1e300, kInfinity, std::nan("")})
    for (const double max_norm : {0.0, 1.5})
      for (const double loss_scale : {1.0, 1024.0}) {
        ExactSum sum;
        sum.add(square);
        words.write(std::string(reinterpret_cast<const char*>(sum.words().data()), ExactSum::kWords * 8));
        GPU_CALL(decide(static_cast<const int64_t*>(words.data()), loss_scale, max_norm, 1,
                        static_cast<ddp_gpu_gate*>(gate.data()), stream.get()));
        stream.wait();
        ddp_gpu_gate got{};
        std::memcpy(&got, gate.read().data(), sizeof got);
        const double norm = std::sqrt(square) / loss_scale;
        double scale = 1 / loss_scale;
        if (max_norm > 0 && !(max_norm / (norm + 1e-6) >= 1)) scale *= max_norm / (norm + 1e-6);
        expect_same(DDP_F64, encoded_double(got.norm), encoded_double(norm), "the norm");
        expect_same(DDP_F64, encoded_double(got.scale), encoded_double(scale), "the scale");
        expect_equal(got.skip != 0, !std::isfinite(square), "is the step left out");
      }
}

ddp_case(a_word_of_the_host_arrives) {
  const card::Stream stream(kGpu);
  const card::Memory to(kGpu, sizeof(uint32_t));
  void *host = nullptr, *device = nullptr;
  GPU_CALL(host_alloc(&host, &device, sizeof(uint32_t)));
  for (const uint32_t value : {0u, 1u, 0xffffffffu}) {
    std::memcpy(host, &value, sizeof value);
    GPU_CALL(copy_word(static_cast<const uint32_t*>(device), static_cast<uint32_t*>(to.data()), stream.get()));
    stream.wait();
    expect(to.read() == std::string(reinterpret_cast<const char*>(&value), sizeof value), "the word");
  }
  GPU_CALL(host_free(host));
}

ddp_case(a_hash_depends_on_the_bytes_alone) {
  const card::Stream stream(kGpu);
  const auto hash_of = [&](const std::vector<std::string>& data, int64_t offset) {
    Arrays arrays(DDP_U8, data, offset);
    const card::Memory out(kGpu, static_cast<int64_t>(data.size()) * 8);
    std::vector<ddp_gpu_span> spans;
    for (size_t k = 0; k < data.size(); ++k) spans.push_back({arrays.at(k), nullptr, arrays.count(k)});
    GPU_CALL(hash(spans.data(), static_cast<int64_t>(spans.size()), static_cast<uint64_t*>(out.data()), stream.get()));
    stream.wait();
    return out.read();
  };
  std::vector<std::string> data;
  for (const size_t length : {size_t{1}, size_t{7}, size_t{64}, size_t{1000}, size_t{65'537}, size_t{1'000'001}})
    data.push_back(numbers(DDP_F64, static_cast<int64_t>(length / 8 + 1), length).substr(0, length));
  const std::string first = hash_of(data, 0);
  expect(first == hash_of(data, 3), "the place changes nothing");
  for (size_t k = 0; k < data.size(); ++k) {
    auto changed = data;
    changed[k].back() = static_cast<char>(changed[k].back() ^ 0x10);
    const std::string other = hash_of(changed, 0);
    for (size_t j = 0; j < data.size(); ++j)
      expect_equal(other.substr(8 * j, 8) == first.substr(8 * j, 8), j != k, "the hash of array " + std::to_string(j));
  }
}

ddp_case(a_quotient_is_divided) {
  const card::Stream stream(kGpu);
  for (const ddp_dtype dtype : kFloats) {
    Arrays source(dtype, all_lengths(dtype, 1, true), 1);
    std::vector<std::string> wanted;
    std::vector<ddp_gpu_span> spans;
    for (size_t k = 0; k < source.host.size(); ++k) {
      wanted.push_back(source.host[k]);
      const void* const in = source.host[k].data();
      void* const out = wanted.back().data();
      cpu::reduce(cpu::ReduceRule{dtype, DDP_AVERAGE, 3}, &in, 1, &out, 1, source.count(k));
      spans.push_back({source.at(k), source.at(k), source.count(k)});
    }
    GPU_CALL(move_quotient(spans.data(), static_cast<int64_t>(spans.size()), dtype, dtype, 1, 3, nullptr, stream.get()));
    stream.wait();
    const auto got = source.read();
    for (size_t k = 0; k < got.size(); ++k) expect(got[k] == wanted[k], "divided, " + std::string(dtype_name(dtype)));
  }
}

/// All bits, a NaN's too: ranks in host memory and ranks on a GPU agree.
ddp_case(a_tree_sum_has_the_bits_of_the_cpu) {
  const card::Stream stream(kGpu);
  for (const ddp_dtype dtype : kFloats)
    for (const int32_t ranks : {1, 2, 3, 5, 8, 9, 17, 24})
      for (const ddp_reduce op : {DDP_SUM, DDP_AVERAGE, DDP_MIN, DDP_MAX})
        for (const int64_t count : {1, 1024, 20'011}) {
          std::vector<std::string> slices;
          std::vector<const void*> in;
          std::string all;
          for (int32_t r = 0; r < ranks; ++r)
            slices.push_back(with_specials(dtype, numbers(dtype, count, static_cast<uint64_t>(r))));
          for (const std::string& each : slices) in.push_back(each.data()), all += each;
          std::string wanted(slices[0].size(), '\0');
          void* const out = wanted.data();
          cpu::reduce(cpu::ReduceRule{dtype, op, ranks}, in.data(), ranks, &out, 1, count);
          Arrays parts(dtype, {all}, 0), result(dtype, {wanted}, 1);
          ddp_gpu_tree tree{};
          tree.parts = tree.own = parts.at(0);
          tree.out = result.at(0);
          tree.stride = tree.count = count;
          tree.dtype = dtype;
          tree.reduce = op == DDP_MIN ? DDP_GPU_MIN : op == DDP_MAX ? DDP_GPU_MAX : DDP_GPU_SUM;
          tree.ranks = ranks;
          tree.divisor = op == DDP_AVERAGE ? ranks : 1;
          GPU_CALL(tree_sum(&tree, nullptr, stream.get()));
          stream.wait();
          expect(result.read()[0] == wanted,
                 std::string(dtype_name(dtype)) + ", " + std::to_string(ranks) + " ranks, op " + std::to_string(op));
        }
}

gpu_cases(card::need_devices(1));

}  // namespace
