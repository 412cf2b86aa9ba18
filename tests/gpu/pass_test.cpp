// SPDX-License-Identifier: Apache-2.0
// Passes over CUDA tensors on one rank: the gradients afterwards, in every dtype and both kinds of memory, are those that
// the CPU gives, bit for bit.

#include "gpu/support/trainer.hpp"

using namespace ddp::test::card;

namespace {

constexpr ddp_dtype kAll[] = {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_C64, DDP_C128};

/// Runs `body` on the CPU and on the GPU, for each dtype and both kinds of gradients, and compares what it returns.
template <class Body>
void same_on_both(const std::string& what, Body body,
                  std::initializer_list<ddp_dtype> dtypes = {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_C64, DDP_C128}) {
  const GroupHandle group = alone();
  for (const ddp_dtype dtype : dtypes)
    for (const bool own : {false, true}) {
      Plan plan;
      plan.dtype = dtype;
      plan.own_gradients = own;
      const auto run = [&](Place place) {
        plan.place = place;
        Trainer trainer(group.get(), plan);
        return body(trainer);
      };
      expect_same_bytes(run(kGpu), run(kCpu),
                        what + ", " + dtype_name(dtype) + (own ? ", own gradients" : ", libddp's gradients"));
    }
}

ddp_case(a_pass_of_one_rank_leaves_its_gradients) {
  const GroupHandle group = alone();
  for (const ddp_dtype dtype : kAll)
    for (const bool own : {false, true}) {
      Plan plan;
      plan.dtype = dtype;
      plan.own_gradients = own;
      Trainer trainer(group.get(), plan);
      for (int step = 0; step < 3; ++step) {
        trainer.pass(step);
        expect_same_bytes(trainer.grad_bytes(),
                          trainer.expected_grads([&](size_t p, int64_t i) { return fine_gradient(0, step, p, i); }),
                          dtype_name(dtype));
      }
    }
}

ddp_case(gradients_begin_at_zero_and_can_be_cleared) {
  same_on_both("cleared", [](Trainer& t) {
    std::string all = t.grad_bytes();
    t.pass(0);
    all += t.grad_bytes();
    OK(ddp_model_zero_grad(t.model.get(), t.stream.get()));
    return all + t.grad_bytes();
  });
}

ddp_case(gradients_can_be_scaled_and_limited) {
  same_on_both("scaled", [](Trainer& t) {
    t.pass(0);
    OK(ddp_model_scale_grad(t.model.get(), 0.3, t.stream.get()));
    std::string all = t.grad_bytes();
    OK(ddp_model_clip_grad_value(t.model.get(), 1.1, t.stream.get()));
    return all + t.grad_bytes();
  });
}

ddp_case(norms_are_those_of_the_cpu) {
  same_on_both("norms", [](Trainer& t) {
    t.pass(0);
    double norm[4] = {};
    OK(ddp_model_get_grad_norm(t.model.get(), 1, &norm[0], t.stream.get()));
    OK(ddp_model_get_grad_norm(t.model.get(), 2, &norm[1], t.stream.get()));
    OK(ddp_model_get_grad_norm(t.model.get(), INFINITY, &norm[2], t.stream.get()));
    OK(ddp_model_clip_grad_norm(t.model.get(), 3.0, 2, &norm[3], t.stream.get()));
    return std::string(reinterpret_cast<const char*>(norm), sizeof norm) + t.grad_bytes();
  });
}

ddp_case(a_nan_reaches_the_norm) {
  const GroupHandle group = alone();
  Trainer t(group.get(), Plan{});
  t.scale = NAN;
  t.pass(0);
  for (const double p : {1.0, 2.0, static_cast<double>(INFINITY)}) {
    double norm = 0;
    OK(ddp_model_get_grad_norm(t.model.get(), p, &norm, t.stream.get()));
    expect(std::isnan(norm), "the norm of a NaN is NaN");
  }
}

ddp_case(accumulated_gradients_are_reduced_by_the_last_pass) {
  same_on_both("accumulated",
               [](Trainer& t) {
                 t.pass(0, DDP_PASS_ACCUMULATE);
                 t.pass(1, DDP_PASS_ACCUMULATE);
                 t.pass(2);
                 ddp_model_stats stats{};
                 stats.struct_size = sizeof stats;
                 OK(ddp_model_get_stats(t.model.get(), &stats));
                 expect_equal(stats.passes, int64_t{1}, "passes that reduced");
                 t.pass(3, DDP_PASS_LOCAL);
                 return t.grad_bytes();
               },
               {DDP_F32, DDP_BF16});
}

ddp_case(what_nobody_used_is_left_alone) {
  const GroupHandle group = alone();
  for (const Place place : {kGpu, kCpu}) {
    Plan plan;
    plan.place = place;
    plan.options = [](ddp_model_options& options) { options.unused = DDP_UNUSED_ALLOW; };
    Trainer t(group.get(), plan);
    OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
    for (int32_t p = t.count(); p-- > 1;) {
      t.produce(static_cast<size_t>(p), 0, t.stream.get());
      OK(ddp_model_mark_ready(t.model.get(), p, t.stream.get()));
    }
    OK(ddp_model_mark_unused(t.model.get(), 0));
    OK(ddp_model_end_backward(t.model.get(), t.stream.get()));
    expect_equal(ddp_model_was_used(t.model.get(), 0), 0, "the first was used");
    expect_equal(ddp_model_was_used(t.model.get(), 1), 1, "the second was used");
  }
}

ddp_case(a_gradient_that_nobody_marked_is_named_and_the_next_pass_works) {
  const GroupHandle group = alone();
  Trainer t(group.get(), Plan{});
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  OK(ddp_model_mark_ready(t.model.get(), 1, t.stream.get()));
  FAILS(DDP_ERROR_INVALID_STATE, ddp_model_end_backward(t.model.get(), t.stream.get()), "p0");
  t.pass(1);
  expect_same_bytes(t.grad_bytes(), t.expected_grads([](size_t p, int64_t i) { return fine_gradient(0, 1, p, i); }),
                    "the pass after it");
}

ddp_case(gradients_that_move_are_found) {
  const GroupHandle group = alone();
  Plan plan;
  plan.own_gradients = true;
  Trainer t(group.get(), plan);
  std::vector<Memory> moved;
  for (size_t p = 0; p < plan.counts.size(); ++p) {
    moved.emplace_back(kGpu, t.bytes_of(p));
    ddp_tensor there;
    OK(ddp_model_get_grad(t.model.get(), static_cast<int32_t>(p), &there));
    there.data = moved[p].data();
    OK(ddp_model_set_grad(t.model.get(), static_cast<int32_t>(p), &there));
    t.grads[p] = moved[p].data();
  }
  t.pass(4);
  OK(ddp_model_scale_grad(t.model.get(), 2.0, t.stream.get()));
  expect_same_bytes(t.grad_bytes(), t.expected_grads([](size_t p, int64_t i) {
    return 2 * static_cast<double>(static_cast<float>(fine_gradient(0, 4, p, i)));
  }),
                    "moved gradients");
}

/// Tensors on the CPU and on the GPU in one model.
ddp_case(a_model_may_be_on_both) {
  const GroupHandle group = alone();
  ddp_model* made = nullptr;
  OK(ddp_model_create(group.get(), nullptr, &made));
  const Memory on_cpu(kCpu, 400), on_gpu(kGpu, 800);
  const Stream stream(kGpu);
  const ModelHandle model(made);
  const ddp_tensor first = flat(on_cpu.data(), DDP_F32, 100, kCpu), second = flat(on_gpu.data(), DDP_F32, 200, kGpu);
  OK(ddp_model_add_parameter(made, "on the CPU", &first, nullptr, nullptr));
  OK(ddp_model_add_parameter(made, "on the GPU", &second, nullptr, nullptr));
  OK(ddp_model_commit(made, stream.get()));
  auto options = defaults<ddp_sgd_options>();
  options.rate = 0.5;
  ddp_optimizer* optimizer = nullptr;
  OK(ddp_optimizer_create_sgd(made, &options, nullptr, &optimizer));
  const OptimizerHandle owner(optimizer);
  ddp_tensor grad[2];
  for (const int32_t p : {0, 1}) OK(ddp_model_get_grad(made, p, &grad[p]));
  expect_equal(static_cast<int>(grad[0].device), static_cast<int>(DDP_CPU), "the first gradient's device");
  expect_equal(static_cast<int>(grad[1].device), static_cast<int>(DDP_CUDA), "the second gradient's device");
  const std::string ones = encoded(DDP_F32, 200, [](int64_t) { return 1.0; });
  OK(ddp_model_begin_backward(made, DDP_PASS_REDUCE));
  std::memcpy(grad[0].data, ones.data(), 400);
  GPU_CALL(copy(grad[1].data, ones.data(), 800, stream.get()));
  OK(ddp_model_mark_ready(made, 1, stream.get()));
  OK(ddp_model_mark_ready(made, 0, nullptr));
  OK(ddp_model_end_backward(made, stream.get()));
  double norm = 0;
  OK(ddp_model_get_grad_norm(made, 1, &norm, stream.get()));
  expect_equal(norm, 300.0, "the norm over both");
  OK(ddp_optimizer_step(optimizer, stream.get()));
  stream.wait();
  expect_same_bytes(on_cpu.read() + on_gpu.read(), encoded(DDP_F32, 300, [](int64_t) { return -0.5; }), "values on both");
}

ddp_case(memory_of_a_gpu_group_lies_on_the_gpu) {
  const GroupHandle group = alone(DDP_BACKEND_NCCL, 0);
  void* memory = nullptr;
  OK(ddp_group_alloc(group.get(), 4096, &memory));
  int32_t device = -1;
  int32_t host_reads = 0;
  GPU_CALL(pointer_device(memory, &device, &host_reads));
  expect_equal(device, 0, "where it lies");
  expect_same_bytes(read_memory(kGpu, memory, 4096), std::string(4096, '\0'), "zeroed");
  OK(ddp_group_free(group.get(), memory));
}

gpu_cases(need_devices(1));

}  // namespace
