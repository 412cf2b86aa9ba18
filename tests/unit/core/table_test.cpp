// SPDX-License-Identifier: Apache-2.0

#include "core/parameters.hpp"
#include "support/check.hpp"

alignas(64) float memory[1024];

Tensor at(int64_t begin, int64_t count, ddp_dtype dtype = DDP_F32) { return flat_tensor(memory + begin, dtype, count); }

ddp_case(indices_count_from_zero_in_the_order_of_registration) {
  Parameters table;
  const Tensor grad = at(100, 10);
  expect_equal(table.add_parameter("a", at(0, 10), &grad), 0, "first parameter");
  expect_equal(table.add_parameter("b", at(10, 10), nullptr), 1, "second parameter");
  expect_equal(table.add_buffer("c", at(20, 10)), 0, "first buffer");
  expect_equal(table.parameter_count(), 2, "parameters");
  expect_equal(table.parameter(1).name, std::string("b"), "name");
  expect_equal(table.buffers().at(0).name, std::string("c"), "name");
  expect(table.parameter(0).grad.data == grad.data && !table.parameter(0).owned_grad, "the caller's gradient");
}

ddp_case(a_missing_gradient_is_owned_and_shaped_like_the_value) {
  Parameters table;
  table.add_parameter("a", at(0, 10), nullptr);
  const Parameter& parameter = table.parameters().at(0);
  expect(parameter.owned_grad && parameter.grad.data == nullptr, "owned, without memory yet");
  expect(parameter.grad.same_shape(parameter.value) && parameter.grad.dtype == DDP_F32, "shape and dtype");
}

ddp_case(names_are_unique_among_parameters_and_buffers) {
  Parameters table;
  table.add_parameter("w", at(0, 10), nullptr);
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_parameter("w", at(50, 10), nullptr); }, {"\"w\""});
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_buffer("w", at(50, 10)); }, {"\"w\""});
}

ddp_case(names_have_1_to_1024_bytes) {
  Parameters table;
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_parameter("", at(0, 10), nullptr); });
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_buffer(std::string(1025, 'n'), at(0, 10)); });
  table.add_buffer(std::string(1024, 'n'), at(0, 10));
}

ddp_case(memory_is_lent_once) {
  const std::pair<int64_t, int64_t> overlapping[] = {{100, 10}, {95, 6}, {109, 5}, {103, 2}, {90, 40}};
  for (const auto& [begin, count] : overlapping) {
    Parameters table;
    const Tensor grad = at(300, 10);
    table.add_parameter("first", at(100, 10), &grad);
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_buffer("b", at(begin, count)); }, {"parameter \"first\""});
    const Tensor over_grad = at(begin + 200, count);
    expect_error(DDP_ERROR_INVALID_ARGUMENT,
                 [&] {
                   Tensor value = at(500, count);
                   table.add_parameter("second", value, &over_grad);
                 },
                 {"the gradient of parameter \"second\"", "the gradient of parameter \"first\""});
  }
}

ddp_case(neighbours_and_empty_tensors_overlap_nothing) {
  Parameters table;
  table.add_parameter("middle", at(100, 10), nullptr);
  table.add_parameter("before", at(90, 10), nullptr);
  table.add_parameter("after", at(110, 10), nullptr);
  table.add_parameter("empty", at(105, 0), nullptr);
  table.add_buffer("none", flat_tensor(nullptr, DDP_F32, 0));
  expect_equal(table.parameter_count(), 4, "parameters");
}

ddp_case(a_gradient_on_its_own_parameter_is_refused) {
  Parameters table;
  const Tensor grad = at(5, 10);
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_parameter("w", at(0, 10), &grad); }, {"overlaps"});
}

ddp_case(a_gradient_of_another_shape_or_dtype_is_refused_with_both) {
  Parameters table;
  const Tensor longer = at(100, 11), half = at(100, 10, DDP_F16);
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_parameter("w", at(0, 10), &longer); }, {"F32 [11]"});
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_parameter("w", at(0, 10), &half); }, {"F16 [10]"});
}

ddp_case(only_floating_tensors_are_parameters) {
  Parameters table;
  for (const ddp_dtype dtype : {DDP_I32, DDP_I64, DDP_U8})
    expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { table.add_parameter("w", at(0, 10, dtype), nullptr); }, {"buffer"});
  table.add_buffer("steps", at(0, 10, DDP_I64));
}

ddp_case(a_refused_tensor_leaves_the_table_as_it_was) {
  Parameters table;
  table.add_parameter("taken", at(100, 10), nullptr);
  const Tensor bad_grad = at(100, 10);
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_parameter("w", at(0, 10), &bad_grad); });
  expect_equal(table.parameter_count(), 1, "parameters");
  const Tensor grad = at(200, 10);
  expect_equal(table.add_parameter("w", at(0, 10), &grad), 1, "the same name and memory can be registered after all");
}

Tensor on_gpu(int32_t device, int64_t begin, int64_t count) {
  Tensor tensor = at(begin, count);
  tensor.device_index = device;
  return tensor;
}

ddp_case(a_gradient_in_other_memory_than_its_parameter_is_refused_with_both) {
  Parameters table;
  const Tensor host = at(100, 10), first = on_gpu(0, 100, 10), second = on_gpu(1, 100, 10);
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_parameter("w", on_gpu(0, 0, 10), &host); },
               {"the gradient of parameter \"w\" is in host memory but the parameter is on GPU 0"});
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_parameter("w", at(0, 10), &first); }, {"is on GPU 0"});
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_parameter("w", on_gpu(0, 0, 10), &second); }, {"is on GPU 1"});
  table.add_parameter("w", on_gpu(1, 0, 10), &second);
  expect_equal(table.parameter(0).grad.device_index, 1, "the gradient's GPU");
}

ddp_case(equal_addresses_on_different_devices_are_different_memory) {
  Parameters table;
  table.add_parameter("host", at(100, 10), nullptr);
  table.add_parameter("first", on_gpu(0, 100, 10), nullptr);
  table.add_parameter("second", on_gpu(1, 95, 10), nullptr);
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_buffer("b", on_gpu(0, 109, 1)); }, {"parameter \"first\""});
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { table.add_buffer("b", at(109, 1)); }, {"parameter \"host\""});
  table.add_buffer("b", on_gpu(1, 105, 10));
}

ddp_case(the_table_knows_the_gpu_of_its_parameters) {
  Parameters table;
  table.add_parameter("host", at(0, 10), nullptr);
  expect(table.device() == nullptr, "none");
  Tensor bound = on_gpu(0, 0, 10);
  bound.device = reinterpret_cast<const device::Device*>(memory);  // never looked at
  table.add_parameter("w", bound, nullptr);
  table.add_parameter("other", at(10, 10), nullptr);
  expect(table.device() == bound.device, "that of the parameter on one");
}
