// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.hpp"

#include <initializer_list>

#include "support/check.hpp"

alignas(8) float memory[64];

ddp_tensor tensor_of(std::initializer_list<int64_t> shape, ddp_dtype dtype = DDP_F32, void* data = memory) {
  ddp_tensor tensor{};
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.device = DDP_CPU;
  for (const int64_t extent : shape) tensor.shape[tensor.ndim++] = extent;
  return tensor;
}

std::string refusal(ddp_status status, const ddp_tensor& tensor) {
  const std::string text =
      expect_error(status, [&] { (void)checked_tensor(&tensor, "parameter \"w\""); }, {"parameter \"w\""});
  return text;
}

ddp_case(the_count_is_the_product_of_the_shape) {
  const ddp_tensor tensor = tensor_of({2, 3, 4}, DDP_F16);
  expect_equal(checked_tensor(&tensor, "x").count, 24, "count");
  expect_equal(checked_tensor(&tensor, "x").bytes(), 48, "bytes");
}

ddp_case(a_scalar_has_one_element) {
  const ddp_tensor scalar = tensor_of({}, DDP_F64);
  const Tensor checked = checked_tensor(&scalar, "x");
  expect_equal(checked.count, 1, "count");
  expect_equal(checked.bytes(), 8, "bytes");
}

ddp_case(an_empty_tensor_needs_no_memory) {
  const ddp_tensor empty = tensor_of({3, 0, 2}, DDP_F32, nullptr);
  expect_equal(checked_tensor(&empty, "x").count, 0, "count");
}

ddp_case(entries_behind_ndim_are_ignored) {
  ddp_tensor tensor = tensor_of({2});
  tensor.shape[1] = -7;
  expect_equal(checked_tensor(&tensor, "x").count, 2, "count");
}

ddp_case(null_is_refused_by_name) {
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [] { (void)checked_tensor(nullptr, "buffer \"b\""); }, {"buffer \"b\""});
  expect_contains(refusal(DDP_ERROR_INVALID_ARGUMENT, tensor_of({2}, DDP_F32, nullptr)), "2 elements");
}

ddp_case(unknown_dtypes_and_devices_are_refused) {
  expect_contains(refusal(DDP_ERROR_INVALID_ARGUMENT, tensor_of({2}, static_cast<ddp_dtype>(99))), "99");
  ddp_tensor tensor = tensor_of({2});
  tensor.device = static_cast<ddp_device_kind>(77);
  expect_contains(refusal(DDP_ERROR_INVALID_ARGUMENT, tensor), "77");
  tensor.device = DDP_CUDA;
  expect_contains(refusal(DDP_ERROR_NOT_SUPPORTED, tensor), "GPU");
}

ddp_case(impossible_shapes_are_refused) {
  expect_contains(refusal(DDP_ERROR_INVALID_ARGUMENT, tensor_of({2, -3})), "dimension 1");
  ddp_tensor tensor = tensor_of({2});
  for (const int32_t ndim : {-1, DDP_MAX_DIMENSIONS + 1}) {
    tensor.ndim = ndim;
    expect_contains(refusal(DDP_ERROR_INVALID_ARGUMENT, tensor), std::to_string(ndim) + " dimensions");
  }
}

ddp_case(sizes_that_overflow_are_refused) {
  refusal(DDP_ERROR_INVALID_ARGUMENT, tensor_of({int64_t{1} << 32, int64_t{1} << 32}));
  refusal(DDP_ERROR_INVALID_ARGUMENT, tensor_of({int64_t{1} << 62}, DDP_F32));
}

ddp_case(memory_that_is_not_aligned_to_an_element_is_refused) {
  char* const odd = reinterpret_cast<char*>(memory) + 2;
  expect_contains(refusal(DDP_ERROR_INVALID_ARGUMENT, tensor_of({2}, DDP_F32, odd)), "aligned");
  const ddp_tensor half = tensor_of({2}, DDP_F16, odd);
  expect_equal(checked_tensor(&half, "x").count, 2, "count");
}

ddp_case(a_checked_tensor_goes_back_to_the_same_c_tensor) {
  const ddp_tensor tensor = tensor_of({2, 5}, DDP_BF16);
  const ddp_tensor back = to_c(checked_tensor(&tensor, "x"));
  expect(back.data == tensor.data && back.dtype == tensor.dtype && back.device == DDP_CPU && back.ndim == 2, "fields");
  expect(back.shape[0] == 2 && back.shape[1] == 5, "shape");
}

ddp_case(complex_tensors_become_pairs_and_back) {
  float data[13] = {};
  const int64_t shape[8] = {2, 3, 1, 1, 1, 1, 1, 1};
  ddp_tensor given{};
  expect(ddp::to_c(flat_tensor(data, DDP_C64, 1)).dtype == DDP_C64, "dtype");
  given.data = data + 1;  // aligned to a part, not to the whole
  given.dtype = DDP_C64;
  given.device = DDP_CPU;
  given.ndim = 2;
  std::copy(shape, shape + 8, given.shape);
  const Tensor tensor = checked_tensor(&given, "z");
  const Tensor real = real_view(tensor);
  expect(real.dtype == DDP_F32 && real.ndim == 3 && real.shape[2] == 2 && real.count == 12 && real.bytes() == tensor.bytes(),
         "pairs");
  const Tensor back = declared_view(real, DDP_C64);
  expect(back.dtype == DDP_C64 && back.same_shape(tensor) && back.count == tensor.count, "back");
  expect(
      real_view(flat_tensor(data, DDP_F32, 3)).ndim == 1 && declared_view(flat_tensor(data, DDP_F32, 3), DDP_F32).count == 3,
      "others stay");
  given.ndim = 8;
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { (void)checked_tensor(&given, "z"); }, {"complex tensors have 0 to 7"});
}

ddp_case(shapes_are_compared_with_their_dimensions) {
  const ddp_tensor a = tensor_of({2, 3}), b = tensor_of({3, 2}), c = tensor_of({2, 3, 1});
  const Tensor x = checked_tensor(&a, "a");
  expect(x.same_shape(checked_tensor(&a, "a")), "equal shapes");
  expect(!x.same_shape(checked_tensor(&b, "b")), "[2, 3] and [3, 2]");
  expect(!x.same_shape(checked_tensor(&c, "c")), "[2, 3] and [2, 3, 1]");
}

ddp_case(a_tensor_is_described_in_one_short_text) {
  const ddp_tensor tensor = tensor_of({2, 3}), scalar = tensor_of({}, DDP_I64);
  expect_equal(describe(checked_tensor(&tensor, "x")), std::string("F32 [2, 3]"), "text");
  expect_equal(describe(checked_tensor(&scalar, "x")), std::string("I64 []"), "text");
  expect_equal(describe(flat_tensor(memory, DDP_U8, 7)), std::string("U8 [7]"), "text");
}
