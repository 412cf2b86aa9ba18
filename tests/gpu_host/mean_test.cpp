// SPDX-License-Identifier: Apache-2.0
// Sums and means over the ranks of tensors on a GPU are those of tensors in host memory wherever both are exact: collectives
// and passes, every type, also where the sum of F16 would not fit although the mean does.

#include "model/uneven.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

std::vector<std::byte> made(ddp_dtype dtype, const std::vector<double>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * static_cast<size_t>(dtype_size(dtype)));
  for (size_t i = 0; i < numbers.size(); ++i) set_element(dtype, bytes.data(), i, numbers[i]);
  return bytes;
}

/// Small whole numbers whose mean is exact; and what overflows F16 when it is added to itself.
std::vector<double> numbers_of(ddp_dtype dtype, ddp_reduce op, int rank, int64_t count) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<double>(4 * ((i * 3 + rank * 5) % 11)));
  if (is_floating(dtype) && op == DDP_AVERAGE) numbers[1] = numbers[static_cast<size_t>(count) - 1] = 40000;
  return numbers;
}

ddp_case(collectives_have_the_bits_of_host_memory) {
  constexpr int64_t kCount = 102;  // in all; for 2 and 3 ranks
  for (const int size : {2, 3}) {
    run_on(Path::kGpu, size, [&](group::Group& group, int rank) {
      const GpuStream stream(rank);
      for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_I32, DDP_I64, DDP_U8})
        for (const ddp_reduce op : {DDP_SUM, DDP_AVERAGE, DDP_MIN, DDP_MAX}) {
          const bool exact = size != 3 || dtype_size(dtype) > 2;  // sums of 16 bits are rounded before they are divided
          if (op == DDP_AVERAGE && (!is_floating(dtype) || !exact)) continue;  // refused; not exact
          const std::vector<std::byte> input = made(dtype, numbers_of(dtype, op, rank, kCount));
          std::vector<std::byte> whole = input, own(input.size() / static_cast<size_t>(size));
          group.all_reduce(flat_tensor(whole.data(), dtype, kCount), op);
          std::vector<std::byte> source = input;
          group.reduce_scatter(flat_tensor(source.data(), dtype, kCount), flat_tensor(own.data(), dtype, kCount / size), op);
          GpuArray all(rank, static_cast<int64_t>(input.size())), part(rank, static_cast<int64_t>(own.size()));
          all.poke(input);
          group.reduce_scatter(all.tensor(group, dtype), part.tensor(group, dtype), op, stream.get());
          stream.synchronize();
          const std::string what =
              std::string(dtype_name(dtype)) + ", op " + std::to_string(op) + ", " + std::to_string(size) + " ranks";
          expect(part.peek<std::byte>() == own, "reduce-scatter of " + what);
          expect(all.peek<std::byte>() == input, "its input stays: " + what);
          group.all_reduce(all.tensor(group, dtype), op, stream.get());
          stream.synchronize();
          expect(all.peek<std::byte>() == whole, "all-reduce of " + what);
          all.poke(input);
          Tensor in_place = all.tensor(group, dtype);
          in_place = flat_part(in_place, rank * (kCount / size), kCount / size);
          group.reduce_scatter(all.tensor(group, dtype), in_place, op, stream.get());
          stream.synchronize();
          const std::vector<std::byte> after = all.peek<std::byte>();
          expect(std::equal(own.begin(), own.end(), after.begin() + static_cast<std::ptrdiff_t>(own.size()) * rank),
                 "in place: " + what);
        }
    });
  }
}

struct Way {
  bool shard = false, in_backward = false, weights = false, owned = true;
  ddp_dtype wire{};
};

double number_of(const Way& way, int64_t i, int rank, int pass) {
  if (way.wire != 0) return rank == 0 ? 256 : 1 + static_cast<double>(i % 2);
  return static_cast<double>(i % 3 == 0 ? 40960 : 64 * ((i + rank) % 2 + pass));
}

/// The parameters after two passes and steps.
std::string trained(group::Group& group, int rank, ddp_dtype dtype, const Way& way, Home home) {
  Ways ways;
  ways.home = home;
  ways.shapes = {300, 5000, 7};
  ways.dtype = dtype;
  ways.wire = way.wire;
  ways.first_bucket_bytes = 1'000;
  ways.bucket_bytes = 8'000;
  ways.unused = DDP_UNUSED_ERROR;
  if (way.weights) ways.divisor = DDP_DIVISOR_WEIGHTS;
  ways.owned_grads = way.owned;
  ways.rate = 1.0 / 1024;
  ways.shard = way.shard;
  ways.in_backward = way.in_backward;
  Training world(group, Rule::kSgd, ways);
  if (way.weights) set_weight(*world.model, rank == 0 ? 4096 : 3 * 4096);
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t p = 0; p < world.size(); ++p) {
      std::vector<double> numbers;
      for (int64_t i = 0; i < world.count(p); ++i) numbers.push_back(number_of(way, i, rank, pass));
      world.write(world.grad(p), made(dtype, numbers));
    }
    world.reduce();
    world.step();
  }
  return world.bytes();
}

/// Three ranks: a third of a whole number is no number of F32, so a product with a rounded third shows.
ddp_case(passes_have_the_bits_of_host_memory) {
  for (const int size : {2, 3}) {
    run_on(Path::kGpu, size, [&](group::Group& group, int rank) {
      for (const ddp_dtype dtype : {DDP_F32, DDP_F16, DDP_BF16})
        for (unsigned bits = 0; bits < 16; ++bits) {
          if (size == 3 && dtype != DDP_F32) continue;
          const Way way{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
          expect(trained(group, rank, dtype, way, Home::kGpu) == trained(group, rank, dtype, way, Home::kHost),
                 std::string(dtype_name(dtype)) + ", way " + std::to_string(bits));
        }
    });
  }
}

/// 256 and ones on the other ranks: BF16 would lose each of them.
ddp_case(sixteen_bits_may_be_added_as_f32) {
  run_on(Path::kGpu, 4, [&](group::Group& group, int rank) {
    for (const ddp_dtype dtype : {DDP_BF16, DDP_F16})
      for (unsigned bits = 0; bits < 16; ++bits) {
        const Way way{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, DDP_F32};
        expect(trained(group, rank, dtype, way, Home::kGpu) == trained(group, rank, dtype, way, Home::kHost),
               std::string(dtype_name(dtype)) + ", way " + std::to_string(bits));
      }
  });
}
