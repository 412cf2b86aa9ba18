// SPDX-License-Identifier: Apache-2.0
// Sums and largest elements of arrays on a GPU, against the same arrays in host memory.
#include "device/gpu/norms.hpp"

#include "device/cpu/arrays.hpp"
#include "gpu_host/placed_model.hpp"

fake_gpu_host_case(sums_have_the_bits_of_the_cpu) {
  PlacedModel placed(Home::kGpu);
  gpu::Norms norms(placed.gpu());
  for (const int32_t p : {1, 2, 1}) {
    placed.fill_grads(p, 1e3);
    ExactSum wanted;
    for (int32_t i = 0; i < placed.size(); ++i) {
      cpu::add_norm_terms(placed.grad(i).dtype, placed.read(placed.grad(i)).data(), placed.grad(i).count, p, wanted);
      norms.add(placed.grad(i));
    }
    ExactSum got = norms.sum(p, placed.stream());
    expect(got.words() == wanted.words() || got.value() == wanted.value(), "the sum");
    expect(got.value() > 0, "something was added");
  }
  expect_equal(norms.sum(2, placed.stream()).value(), 0.0, "the sum of nothing");
}

fake_gpu_host_case(the_largest_element_counts_whatever_its_sign_and_a_nan_is_above_all) {
  PlacedModel placed(Home::kGpu);
  gpu::Norms norms(placed.gpu());
  const auto largest = [&] {
    for (int32_t i = 0; i < placed.size(); ++i) norms.add(placed.grad(i));
    return norms.largest(placed.stream());
  };
  placed.fill_grads(1);
  placed.set_grad(2, 1499, -8.5);
  expect_equal(largest(), 8.5, "largest");
  placed.set_grad(7, 1024, -std::numeric_limits<double>::infinity());
  expect_equal(largest(), std::numeric_limits<double>::infinity(), "largest");
  placed.set_grad(0, 0, -std::numeric_limits<double>::quiet_NaN());
  expect(std::isnan(largest()), "NaN");
  placed.fill_grads(2, 0.0);
  expect_equal(largest(), 0.0, "largest of zeros");
}

fake_gpu_host_case(after_the_first_sum_nothing_is_allocated_and_the_host_waits_once) {
  PlacedModel placed(Home::kGpu);
  gpu::Norms norms(placed.gpu());
  placed.fill_grads(1);
  fake_gpu::clear_log();
  for (int round = 0; round < 2; ++round) {
    for (int32_t i = 0; i < placed.size(); ++i) norms.add(placed.grad(i));
    norms.start_sum(2, placed.stream());
    expect_equal(fake_gpu::host_waits(), static_cast<int64_t>(round), "waits before the sum is asked for");
    static_cast<void>(norms.finish(placed.stream()));
  }
  expect_equal(fake_gpu::host_waits(), int64_t{2}, "waits");
  expect_equal(fake_gpu::allocations(), int64_t{0}, "allocations");
}

fake_gpu_host_case(a_sum_that_failed_leaves_nothing_for_the_next) {
  PlacedModel placed(Home::kGpu);
  gpu::Norms norms(placed.gpu());
  placed.fill_grads(1);
  norms.add(placed.grad(0));
  fake_gpu::inject({"add_norm_terms", 1, 1, DDP_GPU_OTHER});
  expect_error(DDP_ERROR_INTERNAL, [&] { static_cast<void>(norms.sum(2, placed.stream())); }, {"adding up a norm"});
  expect_equal(norms.sum(2, placed.stream()).value(), 0.0, "the sum of nothing");
}
