// SPDX-License-Identifier: Apache-2.0
// Memory of an optimizer's state: zero, aligned, of the right shape and type, and never moved.
#include "optim/optimizer_state.hpp"

#include "support/check.hpp"

alignas(64) std::byte lent_memory[4096];

ddp_case(arrays_are_zero_aligned_and_of_the_parameters_shape) {
  Parameters table;
  Tensor matrix = flat_tensor(lent_memory, DDP_BF16, 15);
  matrix.ndim = 2;
  matrix.shape = {3, 5};
  table.add_parameter("matrix", matrix, nullptr);
  table.add_parameter("wide", flat_tensor(lent_memory + 64, DDP_F64, 7), nullptr);
  table.add_parameter("none", flat_tensor(nullptr, DDP_F32, 0), nullptr);
  optim::OptimizerState store(2);
  store.allocate(table);
  for (int32_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < 2; ++k) {
      const Tensor tensor = store.tensor(table, i, k);
      expect_equal(reinterpret_cast<uintptr_t>(tensor.data) % 64, uintptr_t{0}, "alignment");
      expect(tensor.same_shape(table.parameter(i).value), "shape");
      expect(std::all_of(tensor.data, tensor.data + tensor.bytes(), [](std::byte b) { return b == std::byte{0}; }), "zeros");
    }
  expect(store.tensor(table, 0, 0).dtype == DDP_F32 && store.tensor(table, 1, 1).dtype == DDP_F64, "types");
}

/// On a GPU: by hand. Small ones are close together, a large one begins on 256 bytes.
ddp_case(small_arrays_waste_little) {
  optim::StateSpace space;
  int64_t end = 0;
  for (const int64_t bytes : {int64_t{4}, int64_t{160}, int64_t{0}, int64_t{36}, int64_t{4095}}) {
    const optim::StateSpace::Place place = space.add(bytes, false);
    expect_equal(place.offset, end, "no gap, and on 16 bytes");
    end += (bytes + 15) / 16 * 16;
  }
  expect_equal(end, int64_t{16 + 160 + 0 + 48 + 4096}, "bytes of the small ones");
  expect_equal(space.add(8, true).offset, int64_t{0}, "in host memory");
  expect_equal(space.add(4096, false).offset, int64_t{4352}, "the large one, on 256 bytes");
  expect_equal(space.add(4, false).offset, int64_t{4352 + 4096}, "the next one");
  expect_equal(space.add(8, true).offset, int64_t{64}, "in host memory, on 64");
}

ddp_case(later_parameters_do_not_move_earlier_arrays) {
  Parameters table;
  optim::OptimizerState store(1);
  table.add_parameter("a", flat_tensor(lent_memory, DDP_F32, 4), nullptr);
  store.allocate(table);
  std::byte* const first = store.data(0, 0);
  first[3] = std::byte{7};
  for (int i = 1; i < 40; ++i)
    table.add_parameter("p" + std::to_string(i), flat_tensor(lent_memory + 64 * i, DDP_F32, 4), nullptr);
  store.allocate(table);
  store.allocate(table);
  expect(store.data(0, 0) == first && first[3] == std::byte{7}, "the first array is where and what it was");
  expect(store.data(39, 0) != nullptr, "the last parameter has an array");
}

bool refuses = false;
constexpr os::MemoryTable kMayRefuse{[](size_t bytes) noexcept { return refuses ? nullptr : std::calloc(bytes, 1); },
                                     [](void* memory, size_t) noexcept { std::free(memory); }};

ddp_case(what_could_not_be_had_can_be_asked_for_again) {
  os::set_memory_table(&kMayRefuse);
  {
    Parameters table;
    optim::OptimizerState store(2);
    for (int i = 0; i < 3; ++i)
      table.add_parameter("p" + std::to_string(i), flat_tensor(lent_memory + 64 * i, DDP_F32, 16), nullptr);
    refuses = true;
    (void)expect_error(DDP_ERROR_OUT_OF_MEMORY, [&] { store.allocate(table); });
    refuses = false;
    store.allocate(table);
    std::vector<std::byte*> places;
    for (int32_t i = 0; i < 3; ++i)
      for (size_t k = 0; k < 2; ++k) places.push_back(store.data(i, k));
    std::sort(places.begin(), places.end());
    for (size_t i = 1; i < places.size(); ++i) expect(places[i] - places[i - 1] >= 64, "arrays do not overlap");
  }
  os::set_memory_table(nullptr);
}

ddp_case(a_store_without_arrays_allocates_nothing) {
  Parameters table;
  table.add_parameter("a", flat_tensor(lent_memory, DDP_F32, 4), nullptr);
  optim::OptimizerState store(0);
  store.allocate(table);
  expect_equal(store.arrays(), size_t{0}, "arrays");
}

/// Of a parameter that is split over buckets a rank owns several parts: their state is contiguous.
ddp_case(state_of_several_parts_is_dense) {
  Parameters table;
  table.add_parameter("a", flat_tensor(lent_memory, DDP_F32, 100), nullptr);
  table.add_parameter("b", flat_tensor(lent_memory + 1024, DDP_F32, 10), nullptr);
  optim::OptimizerState store(1);
  const std::vector<std::vector<OwnedSpan>> owned = {{{0, 10, 20}, {0, 50, 5}, {0, 90, 10}}, {}};
  store.allocate(table, [&](int32_t index) { return OwnedParts(owned[static_cast<size_t>(index)]); });
  expect_equal(store.arrays_of(0), size_t{1}, "arrays of what is owned in part");
  expect_equal(store.arrays_of(1), size_t{0}, "arrays of what is not owned");
  const auto place = [&](int64_t element) {
    return (store.at(table.parameter(0), 0, 0, element) - store.data(0, 0)) / dtype_size(DDP_F32);
  };
  int64_t wanted = 0;
  for (const OwnedSpan& part : owned[0])
    for (int64_t i = part.first; i < part.first + part.count; ++i) expect_equal(place(i), wanted++, "place");
}
