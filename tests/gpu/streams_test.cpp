// SPDX-License-Identifier: Apache-2.0
// Order on the GPU: a gradient that a slow kernel is still going to write is waited for, in any memory; no other
// result is read too early or overwritten too soon; and the host does not wait.

#include "gpu/support/trainer.hpp"

using namespace ddp::test::card;

namespace {

OptimizerHandle adam(ddp_model* model, bool in_backward = false) {
  auto options = defaults<ddp_adam_options>();
  auto shared = defaults<ddp_optimizer_options>();
  options.rate = 0.05;
  shared.in_backward = in_backward;
  ddp_optimizer* made = nullptr;
  OK(ddp_optimizer_create_adam(model, &options, &shared, &made));
  return OptimizerHandle(made);
}

std::string on_the_cpu(ddp_group* group, int steps) {
  Plan plan;
  plan.place = kCpu;
  Trainer t(group, plan);
  const OptimizerHandle optimizer = adam(t.model.get());
  for (int step = 0; step < steps; ++step) {
    t.pass(step);
    OK(ddp_optimizer_step(optimizer.get(), nullptr));
  }
  return t.value_bytes();
}

/// Gradients come on `streams` in turn, each behind slow work; the step follows on the trainer's own stream.
void one_step(Trainer& t, ddp_optimizer* optimizer, const std::vector<Stream>& streams, const std::vector<SlowWork>& slow) {
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  for (size_t s = 0; s < streams.size(); ++s) {
    streams[s].follow(t.stream);  // what the step before it left
    slow[s].enqueue(streams[s].get());
  }
  for (int32_t p = t.count(); p-- > 0;) {
    void* const stream = streams[static_cast<size_t>(p) % streams.size()].get();
    t.copy_grad(static_cast<size_t>(p), stream);
    OK(ddp_model_mark_ready(t.model.get(), p, stream));
  }
  OK(ddp_model_end_backward(t.model.get(), t.stream.get()));
  OK(ddp_optimizer_step(optimizer, t.stream.get()));
}

ddp_case(gradients_of_slow_kernels_on_several_streams_are_waited_for) {
  const GroupHandle group = alone();
  const std::string wanted = on_the_cpu(group.get(), 3);
  for (const size_t stream_count : {size_t{1}, size_t{2}, size_t{3}})
    for (const bool own : {false, true})
      for (const bool in_backward : {false, true}) {
        Plan plan;
        plan.own_gradients = own;
        Trainer t(group.get(), plan);
        const OptimizerHandle optimizer = adam(t.model.get(), in_backward);
        std::vector<Stream> streams;
        std::vector<SlowWork> slow;
        for (size_t s = 0; s < stream_count; ++s) streams.emplace_back(kGpu, s == 1), slow.emplace_back(kGpu);
        for (int step = 0; step < 3; ++step) {
          t.put_aside(step);
          one_step(t, optimizer.get(), streams, slow);
        }
        expect_same_bytes(t.value_bytes(), wanted, std::to_string(stream_count) + " streams");
      }
}

ddp_case(marks_from_several_threads_with_streams_of_their_own_are_waited_for) {
  const GroupHandle group = alone();
  Trainer t(group.get(), Plan{});
  const OptimizerHandle optimizer = adam(t.model.get());
  std::vector<Stream> streams;
  std::vector<SlowWork> slow;
  for (int s = 0; s < 2; ++s) streams.emplace_back(kGpu), slow.emplace_back(kGpu);
  t.put_aside(0);
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  std::vector<std::thread> threads;
  std::string failures[2];
  for (size_t s = 0; s < 2; ++s)
    threads.emplace_back([&, s] {
      try {
        kGpu.make_current();
        slow[s].enqueue(streams[s].get());
        for (auto p = static_cast<int32_t>(s); p < t.count(); p += 2) {
          t.copy_grad(static_cast<size_t>(p), streams[s].get());
          OK(ddp_model_mark_ready(t.model.get(), p, streams[s].get()));
        }
      } catch (const std::exception& error) {
        failures[s] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) expect_equal(failure, std::string(), "a thread's failure");
  OK(ddp_model_end_backward(t.model.get(), t.stream.get()));
  OK(ddp_optimizer_step(optimizer.get(), t.stream.get()));
  expect_same_bytes(t.value_bytes(), on_the_cpu(group.get(), 1), "after the step");
}

/// Work on another stream than those of the gradients: the end of the pass orders it after all of them.
ddp_case(the_stream_given_at_the_end_comes_after_all_gradients) {
  const GroupHandle group = alone();
  Trainer t(group.get(), Plan{});
  const Stream producer(kGpu), consumer(kGpu);
  const SlowWork slow(kGpu);
  t.put_aside(0);
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  slow.enqueue(producer.get());
  for (int32_t p = t.count(); p-- > 0;) {
    t.copy_grad(static_cast<size_t>(p), producer.get());
    OK(ddp_model_mark_ready(t.model.get(), p, producer.get()));
  }
  OK(ddp_model_end_backward(t.model.get(), consumer.get()));
  std::vector<Memory> seen;
  for (size_t p = 0; p < t.grads.size(); ++p) {
    seen.emplace_back(kGpu, t.bytes_of(p));
    GPU_CALL(copy(seen[p].data(), t.grads[p], t.bytes_of(p), consumer.get()));
  }
  consumer.wait();
  std::string all;
  for (const Memory& memory : seen) all += memory.read();
  expect_same_bytes(all, t.expected_grads([](size_t p, int64_t i) { return fine_gradient(0, 0, p, i); }),
                    "what the consumer's stream saw");
}

/// The gradient is overwritten in the order of the stream given to the end, at once: the former pass must have taken it.
ddp_case(a_gradient_may_be_overwritten_in_the_order_of_that_stream) {
  const GroupHandle group = alone();
  Plan plan;
  plan.own_gradients = true;
  Trainer t(group.get(), plan);
  const OptimizerHandle optimizer = adam(t.model.get());
  const SlowWork slow(kGpu);
  std::vector<Memory> garbage;
  for (size_t p = 0; p < plan.counts.size(); ++p) {
    garbage.emplace_back(kGpu, t.bytes_of(p));
    garbage[p].write(std::string(static_cast<size_t>(t.bytes_of(p)), '\x7f'));
  }
  t.put_aside(0);
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  slow.enqueue(t.stream.get());
  for (int32_t p = t.count(); p-- > 0;) {
    t.copy_grad(static_cast<size_t>(p), t.stream.get());
    OK(ddp_model_mark_ready(t.model.get(), p, t.stream.get()));
  }
  OK(ddp_model_end_backward(t.model.get(), t.stream.get()));
  OK(ddp_optimizer_step(optimizer.get(), t.stream.get()));
  for (size_t p = 0; p < garbage.size(); ++p) GPU_CALL(copy(t.grads[p], garbage[p].data(), t.bytes_of(p), t.stream.get()));
  expect_same_bytes(t.value_bytes(), on_the_cpu(group.get(), 1), "values of the step before the overwriting");
}

ddp_case(the_default_stream_is_a_stream) {
  const GroupHandle group = alone();
  Trainer t(group.get(), Plan{});
  const OptimizerHandle optimizer = adam(t.model.get());
  const SlowWork slow(kGpu);
  t.put_aside(0);
  kGpu.make_current();
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  slow.enqueue(nullptr);
  for (int32_t p = t.count(); p-- > 0;) {
    t.copy_grad(static_cast<size_t>(p), nullptr);
    OK(ddp_model_mark_ready(t.model.get(), p, nullptr));
  }
  OK(ddp_model_end_backward(t.model.get(), nullptr));
  OK(ddp_optimizer_step(optimizer.get(), nullptr));
  GPU_CALL(synchronize());
  expect_same_bytes(t.value_bytes(), on_the_cpu(group.get(), 1), "on the default stream");
}

/// The calls of a step return while the work before it still runs.
ddp_case(a_step_does_not_make_the_host_wait) {
  const GroupHandle group = alone();
  Trainer t(group.get(), Plan{});
  const OptimizerHandle optimizer = adam(t.model.get());
  const SlowWork slow(kGpu);
  std::vector<Stream> streams;
  streams.emplace_back(kGpu);
  std::vector<SlowWork> none;
  none.emplace_back(kGpu, 1);
  t.put_aside(0);
  one_step(t, optimizer.get(), streams, none);  // the first step makes what it needs
  t.put_aside(1);
  t.stream.wait();
  void* behind = nullptr;
  GPU_CALL(event_create(&behind, 0));
  slow.enqueue(t.stream.get(), is_fake() ? 2000 : 400);
  GPU_CALL(event_record(behind, t.stream.get()));
  one_step(t, optimizer.get(), streams, none);
  int32_t done = 1;
  GPU_CALL(event_query(behind, &done));
  expect_equal(done, 0, "was the slow work before the step over when the calls had returned");
  t.stream.wait();
  GPU_CALL(event_destroy(behind));
  expect_same_bytes(t.value_bytes(), on_the_cpu(group.get(), 2), "values after both steps");
}

gpu_cases(need_devices(1));

}  // namespace
