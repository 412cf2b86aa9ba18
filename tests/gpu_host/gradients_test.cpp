// SPDX-License-Identifier: Apache-2.0
// Operations of a model on gradients between passes, when some or all are on a GPU: the bits of host memory, in the order of
// the stream.
#include "model/gradients.hpp"

#include "gpu_host/placed_model.hpp"

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// body(model, stream) on a model in host memory, one on the GPU and one in both; its numbers and all bytes afterwards are
/// the same.
void compare(const std::function<double(model::Model&, void*)>& body, const std::string& what) {
  for (const Home home : {Home::kGpu, Home::kBoth}) {
    PlacedModel host(Home::kHost), gpu(home);
    for (const int step : {1, 2}) {
      host.fill_grads(step, 3.0);
      gpu.fill_grads(step, 3.0);
      expect_equal(body(*gpu.model, gpu.stream()), body(*host.model, nullptr), what);
      expect_same(gpu, host, what);
    }
  }
}

fake_gpu_host_case(gradients_become_zero) {
  compare(
      [](model::Model& model, void* stream) {
        model.gradients().zero(stream);
        return 0.0;
      },
      "zero");
  PlacedModel placed(Home::kGpu);
  placed.fill_grads(1);
  placed.model->gradients().zero(placed.stream());
  for (int32_t i = 0; i < placed.size(); ++i)
    expect(placed.read(placed.grad(i)) == PlacedBytes(static_cast<size_t>(placed.grad(i).bytes())), "zeros");
}

fake_gpu_host_case(gradients_are_scaled) {
  for (const double factor : {0.5, 1.0 / 3.0, -7.0, 0.0})
    compare(
        [&](model::Model& model, void* stream) {
          model.gradients().scale(factor, stream);
          return 0.0;
        },
        "scaled");
}

fake_gpu_host_case(gradients_are_limited) {
  compare(
      [](model::Model& model, void* stream) {
        model.gradients().clip_value(0.7, stream);
        return 0.0;
      },
      "limited");
}

fake_gpu_host_case(norms_are_those_of_the_cpu) {
  for (const double p : {1.0, 2.0, kInfinity})
    compare([&](model::Model& model, void* stream) { return model.gradients().norm(p, stream); }, "norm");
}

fake_gpu_host_case(gradients_are_clipped_by_norm) {
  for (const double p : {1.0, 2.0, kInfinity})
    for (const double most : {0.5, 1e9})
      compare([&](model::Model& model, void* stream) { return model.gradients().clip_norm(most, p, stream); }, "clipped");
}

fake_gpu_host_case(norms_of_numbers_that_are_not_finite_say_so) {
  for (const Home home : {Home::kGpu, Home::kBoth})
    for (const int32_t place : {0, 2}) {
      PlacedModel placed(home);
      placed.fill_grads(1);
      placed.set_grad(place, 0, -kInfinity);
      for (const double p : {1.0, 2.0, kInfinity})
        expect_equal(placed.model->gradients().norm(p, placed.stream()), kInfinity, "norm");
      placed.set_grad(place, 1, place == 0 ? std::nan("") : 0.0);
      for (const double p : {1.0, 2.0, kInfinity})
        expect_equal(std::isnan(placed.model->gradients().norm(p, placed.stream())), place == 0, "norm is NaN");
    }
}

fake_gpu_host_case(only_norms_wait_and_once_each) {
  PlacedModel placed(Home::kGpu);
  placed.fill_grads(1);
  static_cast<void>(placed.model->gradients().norm(2, placed.stream()));
  fake_gpu::clear_log();
  fake_gpu::pause(placed.stream());
  placed.model->gradients().zero(placed.stream());
  placed.model->gradients().scale(0.5, placed.stream());
  placed.model->gradients().clip_value(1, placed.stream());
  expect(fake_gpu::pending(placed.stream()) > 0, "the work is enqueued and not done");
  fake_gpu::resume(placed.stream());
  expect_equal(fake_gpu::host_waits(), int64_t{0}, "waits");
  int64_t waits = 0;
  for (const double p : {1.0, 2.0, kInfinity}) {
    static_cast<void>(placed.model->gradients().clip_norm(1, p, placed.stream()));
    expect_equal(fake_gpu::host_waits(), ++waits, "waits");
  }
  expect_equal(fake_gpu::allocations(), int64_t{0}, "allocations");
}

fake_gpu_host_case(norms_are_refused_in_a_capture_and_the_rest_is_captured) {
  PlacedModel placed(Home::kGpu);
  placed.fill_grads(1);
  expect(fake_gpu::begin_capture(placed.stream()), "the capture begins");
  for (const double p : {2.0, kInfinity})
    expect_error(DDP_ERROR_INVALID_STATE, [&] { static_cast<void>(placed.model->gradients().norm(p, placed.stream())); },
                 {"captured"});
  expect_error(DDP_ERROR_INVALID_STATE,
               [&] { static_cast<void>(placed.model->gradients().clip_norm(1, 2, placed.stream())); }, {"captured"});
  placed.model->gradients().zero(placed.stream());
  const auto graph = fake_gpu::end_capture(placed.stream());
  expect(graph != nullptr, "the capture is not spoiled");
  fake_gpu::launch_graph(graph, placed.stream());
  expect_equal(placed.model->gradients().norm(INFINITY, placed.stream()), 0.0, "the norm after the graph");
}
