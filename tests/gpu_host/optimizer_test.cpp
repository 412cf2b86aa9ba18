// SPDX-License-Identifier: Apache-2.0
// Optimizers of parameters on a GPU: the same bits as in host memory for every option, no allocation and no wait
// for after the first step, and everything in the order of the stream.
#include "optim/optimizer.hpp"

#include "gpu_host/placed_model.hpp"
#include "gpu_host/rule_cases.hpp"
#include "model/optimizer_slot.hpp"

void prepare_step(optim::Optimizer& optimizer, const PlacedModel& placed, int step, bool with_infinity) {
  if (step == 0) optimizer.set_parameter_options(1, 0, 2);
  if (step == 0) optimizer.set_parameter_options(3, 0.1, 0);
  if (step == 2) optimizer.set_rate(0.01);
  if (step == 4) optimizer.set_parameter_options(3, 0.1, 1);
  placed.fill_grads(step);
  if (with_infinity && step == 3) placed.set_grad(2, 700, std::numeric_limits<double>::infinity());
}

void compare_over_steps(const RuleCase& each, Home home, bool with_infinity, const ddp_loss_scale_options* scale = nullptr) {
  PlacedModel host(Home::kHost), gpu(home);
  const auto wanted = each.make(host.model), got = each.make(gpu.model);
  if (scale != nullptr) wanted->set_loss_scale(*scale);
  if (scale != nullptr) got->set_loss_scale(*scale);
  for (int step = 0; step < 6; ++step) {
    prepare_step(*wanted, host, step, with_infinity);
    prepare_step(*got, gpu, step, with_infinity);
    wanted->step();
    got->step(gpu.stream());
    const std::string what = each.name + ", step " + std::to_string(step);
    expect_same(gpu, host, what);
    expect_same_state(gpu, *got, host, *wanted, what);
    expect_equal(got->grad_norm(), wanted->grad_norm(), what + ": norm");
    expect_equal(got->skipped_count(), wanted->skipped_count(), what + ": skipped");
    expect_equal(got->loss_scale(), wanted->loss_scale(), what + ": loss scale");
  }
  expect_equal(wanted->skipped_count(), with_infinity ? int64_t{1} : int64_t{0}, each.name + ": one step was left out");
}

fake_gpu_host_case(every_rule_gives_the_bits_of_the_cpu) {
  for (const RuleCase& each : rules()) compare_over_steps(each, Home::kGpu, false);
}

fake_gpu_host_case(every_policy_gives_the_bits_of_the_cpu) {
  for (const RuleCase& each : policies()) compare_over_steps(each, Home::kGpu, each.name.find("skip") != std::string::npos);
}

fake_gpu_host_case(models_in_both_memories_give_the_bits_of_one_in_host_memory) {
  for (const RuleCase& each : rules()) compare_over_steps(each, Home::kBoth, false);
  for (const RuleCase& each : policies()) compare_over_steps(each, Home::kBoth, each.name.find("skip") != std::string::npos);
}

fake_gpu_host_case(a_loss_scale_divides_gradients_and_adapts) {
  ddp_loss_scale_options fixed = optim::default_loss_scale_options();
  fixed.initial = 12;
  fixed.interval = 0;
  ddp_loss_scale_options dynamic = optim::default_loss_scale_options();
  dynamic.initial = 8;
  dynamic.interval = 2;
  for (const Home home : {Home::kGpu, Home::kBoth}) {
    compare_over_steps({"fixed", adam([](auto&) {})}, home, false, &fixed);
    compare_over_steps({"fixed, clipped", adam([](auto& o) { o.max_norm = 0.2; })}, home, false, &fixed);
    compare_over_steps({"dynamic", adam([](auto&) {})}, home, true, &dynamic);
    compare_over_steps({"dynamic, clipped", sgd([](auto& o) {
                          o.max_norm = 0.2;
                          o.momentum = 0.5;
                        })},
                       home, true, &dynamic);
  }
}

fake_gpu_host_case(what_the_device_decided_once_does_not_stay) {
  PlacedModel host(Home::kHost), gpu(Home::kGpu);
  const MakeOptimizer make = adam([](auto& o) { o.max_norm = 3; });
  const auto wanted = make(host.model), got = make(gpu.model);
  ddp_loss_scale_options dynamic = optim::default_loss_scale_options();
  dynamic.initial = 1;
  for (int step = 0; step < 4; ++step) {
    for (auto* each : {wanted.get(), got.get()})
      if (step == 2) each->set_loss_scale(dynamic);  // from here on the host has to know
    host.fill_grads(step, 1.0 + step);
    gpu.fill_grads(step, 1.0 + step);
    wanted->step();
    got->step(gpu.stream());
    expect_same(gpu, host, "step " + std::to_string(step));
    expect_equal(got->grad_norm(), wanted->grad_norm(), "norm");
  }
}

fake_gpu_host_case(a_gradient_that_is_not_finite_is_named_and_changes_nothing) {
  for (const Home home : {Home::kGpu, Home::kBoth})
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()})
      for (const int32_t culprit : {0, 2, 7}) {
        PlacedModel placed(home);
        const auto optimizer = adam([](auto& o) { o.nonfinite = DDP_NONFINITE_FAIL; })(placed.model);
        placed.fill_grads(1);
        placed.set_grad(culprit, 0, bad);
        const std::vector<PlacedBytes> before = placed.contents();
        expect_error(DDP_ERROR_INVALID_STATE, [&] { optimizer->step(placed.stream()); },
                     {"\"p" + std::to_string(culprit) + "\""});
        expect(placed.contents() == before, "no value has changed");
        expect_equal(optimizer->step_count(), int64_t{0}, "steps");
      }
}

fake_gpu_host_case(a_parameter_that_nobody_used_keeps_value_state_and_step_count) {
  for (const RuleCase& each : {rules()[1], rules()[4], policies()[3]}) {
    PlacedModel host(Home::kHost), gpu(Home::kBoth);
    const auto wanted = each.make(host.model), got = each.make(gpu.model);
    for (int step = 0; step < 5; ++step) {
      for (const PlacedModel* placed : {&host, &gpu}) {
        placed->fill_grads(step);
        placed->model->begin_backward(DDP_PASS_REDUCE);
        for (int32_t i = 0; i < placed->size(); ++i)
          i % 4 == step % 4 ? placed->model->pass().mark_unused(i) : placed->model->pass().mark_ready(i, placed->stream());
        placed->model->end_backward(placed->stream());
      }
      wanted->step();
      got->step(gpu.stream());
      expect_same(gpu, host, each.name);
      expect_same_state(gpu, *got, host, *wanted, each.name);
      expect_equal(got->grad_norm(), wanted->grad_norm(), "norm");
    }
  }
}

fake_gpu_host_case(after_the_first_step_nothing_is_allocated_and_nobody_is_waited_for) {
  for (const auto& list : {rules(), policies()})
    for (const RuleCase& each : list) {
      PlacedModel placed(Home::kGpu);
      const auto optimizer = each.make(placed.model);
      placed.fill_grads(1);
      optimizer->step(placed.stream());
      placed.fill_grads(2);
      fake_gpu::clear_log();
      optimizer->step(placed.stream());
      optimizer->step(placed.stream());
      expect_equal(fake_gpu::allocations(), int64_t{0}, each.name + ": allocations");
      expect_equal(fake_gpu::host_waits(), int64_t{0}, each.name + ": waits");
      const bool planned = each.name.find("skip") != std::string::npos;
      const std::string kernel = std::string(planned ? "planned_" : "") + (each.name.rfind("adam", 0) == 0 ? "adam" : "sgd");
      expect_equal(fake_gpu::calls(kernel), int64_t{2 * 4}, each.name + ": one launch for each type and step");
    }
}

fake_gpu_host_case(a_step_returns_while_its_stream_is_held) {
  PlacedModel host(Home::kHost), gpu(Home::kGpu);
  const MakeOptimizer make = adam([](auto& o) { o.max_norm = 3; });
  const auto wanted = make(host.model), got = make(gpu.model);
  for (int step = 0; step < 3; ++step) {
    host.fill_grads(step);
    wanted->step();
    gpu.fill_grads(step);
    if (step > 0) fake_gpu::pause(gpu.stream());
    got->step(gpu.stream());  // would never return if it waited
    if (step > 0) expect(fake_gpu::pending(gpu.stream()) > 0, "the work is enqueued and not done");
    fake_gpu::resume(gpu.stream());
  }
  expect_equal(got->grad_norm(), wanted->grad_norm(), "norm");
  expect_same(gpu, host, "after three steps");
}

fake_gpu_host_case(a_step_that_must_decide_waits_once_for_its_stream_alone) {
  PlacedModel placed(Home::kGpu);
  const auto optimizer = adam([](auto& o) { o.nonfinite = DDP_NONFINITE_FAIL; })(placed.model);
  placed.fill_grads(1);
  optimizer->step(placed.stream());
  const gpu::Stream other(placed.gpu(), gpu::Stream::Priority::kNormal);
  const gpu::Event event(placed.gpu());
  fake_gpu::pause(other.get());
  event.record(other.get());
  fake_gpu::clear_log();
  optimizer->step(placed.stream());
  expect_equal(fake_gpu::host_waits(), int64_t{1}, "waits");
  expect_equal(fake_gpu::calls("stream_synchronize"), int64_t{1}, "waits for a stream");
  expect_equal(fake_gpu::allocations(), int64_t{0}, "allocations");
  fake_gpu::resume(other.get());
}

fake_gpu_host_case(blocks_of_a_step_are_launched_together) {
  PlacedModel host(Home::kHost), gpu(Home::kGpu);
  const MakeOptimizer make = adam([](auto& o) { o.master_weights = 1; });
  const auto wanted = make(host.model), got = make(gpu.model);
  host.fill_grads(1);
  gpu.fill_grads(1);
  wanted->step();
  got->prepare_blocks();
  fake_gpu::clear_log();
  for (int32_t i = 0; i < gpu.size(); ++i)
    for (int64_t at = 0; at < gpu.value(i).count; at += 100)
      got->update_block(i, at, std::min<int64_t>(100, gpu.value(i).count - at));
  expect_equal(fake_gpu::calls("adam"), int64_t{0}, "launches before the flush");
  got->flush(gpu.stream());
  expect_equal(fake_gpu::calls("adam"), int64_t{4}, "launches");
  got->flush(gpu.stream());
  expect_equal(fake_gpu::calls("adam"), int64_t{4}, "launches of a flush without blocks");
  expect_same(gpu, host, "in blocks");
}

fake_gpu_host_case(a_block_that_was_changed_is_taken_back_and_one_that_was_noted_forgotten) {
  for (const MakeOptimizer& make : {adam([](auto& o) {
                                      o.master_weights = 1;
                                      o.in_backward = 1;
                                    }),
                                    sgd([](auto& o) {
                                      o.momentum = 0.9;
                                      o.in_backward = 1;
                                    })}) {
    PlacedModel placed(Home::kBoth);
    const auto optimizer = make(placed.model);
    const auto change = [&](int32_t index, int64_t first, int64_t end) {
      for (int64_t at = first; at < end; at += 500) optimizer->update_block(index, at, std::min<int64_t>(500, end - at));
    };
    const auto contents = [&] {
      std::vector<PlacedBytes> all = placed.contents();
      for (const model::StateTensor& state : optimizer->state_tensors()) all.push_back(placed.read(state.tensor));
      return all;
    };
    placed.fill_grads(1);
    optimizer->prepare_blocks();
    for (int32_t i = 0; i < placed.size(); ++i) change(i, 0, placed.value(i).count);
    optimizer->flush(placed.stream());
    const auto before = contents();
    for (int round = 0; round < 2; ++round) {
      placed.fill_grads(2);
      optimizer->prepare_blocks();
      if (round == 1) fake_gpu::clear_log();
      const auto part = [&](int64_t from, int64_t to) {
        for (int32_t i = 0; i < 4; ++i) change(i, placed.value(i).count * from / 4, placed.value(i).count * to / 4);
      };
      part(0, 2);
      optimizer->flush(placed.stream());
      part(2, 3);
      optimizer->flush(placed.stream());
      part(3, 4);
      change(7, 0, placed.value(7).count);
      change(6, 0, placed.value(6).count);
      if (round == 1) expect_equal(fake_gpu::allocations() + fake_gpu::host_waits(), int64_t{0}, "allocations and waits");
      expect(contents() != before, "something has changed");
      static_cast<void>(optimizer->restore());
      optimizer->flush(placed.stream());
      expect(contents() == before, "everything is as it was");
    }
  }
}

fake_gpu_host_case(a_step_that_no_graph_can_hold_is_refused_and_changes_nothing) {
  struct Refused {
    MakeOptimizer make;
    Home home;
    int steps;
    std::string why;
  };
  for (const auto& [make, home, steps, why] :
       {Refused{adam([](auto& o) { o.nonfinite = DDP_NONFINITE_FAIL; }), Home::kGpu, 1, "DDP_NONFINITE_SKIP"},
        Refused{adam([](auto&) {}), Home::kBoth, 1, "host memory"}, Refused{sgd([](auto&) {}), Home::kGpu, 0, "one step"}}) {
    PlacedModel placed(home);
    const auto optimizer = make(placed.model);
    placed.fill_grads(1);
    for (int step = 0; step < steps; ++step) optimizer->step(placed.stream());
    expect(fake_gpu::begin_capture(placed.stream()), "the capture begins");
    const std::string text = expect_error(DDP_ERROR_INVALID_STATE, [&] { optimizer->step(placed.stream()); });
    expect(fake_gpu::end_capture(placed.stream()) != nullptr, "the capture is not spoiled");
    expect_contains(text, "ddp_optimizer_step");
    expect_contains(text, "captured");
    expect_contains(text, why);
    expect_equal(optimizer->step_count(), int64_t{steps}, "steps");
  }
}

struct Seen {
  std::map<int32_t, ddp_update_slice> slices;
};

int32_t look(void* user_data, const ddp_update_slice* slice) {
  static_cast<Seen*>(user_data)->slices[slice->index] = *slice;
  return 0;
}

fake_gpu_host_case(a_rule_of_the_caller_gets_the_tensors_and_the_stream) {
  PlacedModel placed(Home::kBoth);
  Seen seen;
  const ddp_optimizer_options shared = optim::default_optimizer_options();
  optim::Custom optimizer(placed.model, look, optim::CustomRule(optim::default_custom_options(), "one,two", "test"), shared,
                          optim::UserData(&seen, nullptr));
  optimizer.step(placed.stream());
  for (int32_t i = 0; i < placed.size(); ++i) {
    expect_equal(seen.slices.count(i) != 0, placed.value(i).count > 0, "called");
    if (placed.value(i).count == 0) continue;
    const ddp_update_slice& slice = seen.slices[i];
    expect_equal(slice.device, placed.value(i).is_on_gpu() ? DDP_CUDA : DDP_CPU, "device");
    if (!placed.value(i).is_on_gpu()) continue;
    expect_equal(slice.count, placed.value(i).count, "elements");
    expect(slice.value == placed.value(i).data && slice.dtype == placed.value(i).dtype && slice.stream == placed.stream(),
           "the memory and the stream");
  }
  ddp_loss_scale_options scale = optim::default_loss_scale_options();
  optimizer.set_loss_scale(scale);
  expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { optimizer.step(placed.stream()); }, {"a loss scale"});
}

fake_gpu_host_case(whole_tensors_are_not_sharded_on_a_gpu) {
  PlacedModel placed(Home::kBoth);
  Seen seen;
  ddp_optimizer_options shared = optim::default_optimizer_options();
  shared.shard = 1;
  ddp_custom_options options = optim::default_custom_options();
  options.whole_tensors = 1;
  const auto optimizer = std::make_shared<optim::Custom>(placed.model, look, optim::CustomRule(options, "one", "test"),
                                                         shared, optim::UserData(&seen, nullptr));
  placed.model->optimizer_slot().attach(optimizer);
  expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { optimizer->step(placed.stream()); }, {"shard with whole_tensors"});
}

fake_gpu_host_case(a_launch_that_fails_is_told_and_not_made_up_for) {
  PlacedModel placed(Home::kGpu);
  const auto optimizer = sgd([](auto&) {})(placed.model);
  placed.fill_grads(1);
  optimizer->step(placed.stream());
  fake_gpu::inject({"sgd", 1, 1, DDP_GPU_BAD_ARGUMENT});
  expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { optimizer->step(placed.stream()); }, {"updating parameters"});
  fake_gpu::clear_log();
  optimizer->flush(placed.stream());
  expect_equal(fake_gpu::calls("sgd"), int64_t{0}, "launches of what was noted before");
  expect_equal(optimizer->step_count(), int64_t{1}, "steps");
}

fake_gpu_host_case(no_memory_for_state_is_told) {
  PlacedModel placed(Home::kGpu);
  const auto optimizer = adam([](auto&) {})(placed.model);
  fake_gpu::inject({"alloc", 1, 1, DDP_GPU_OUT_OF_MEMORY});
  expect_error(DDP_ERROR_OUT_OF_MEMORY, [&] { optimizer->step(placed.stream()); },
               {"bytes left for state beside the parameters"});
  optimizer->step(placed.stream());
  expect_equal(optimizer->step_count(), int64_t{1}, "steps");
}
