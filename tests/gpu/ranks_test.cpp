// SPDX-License-Identifier: Apache-2.0
// Several ranks with CUDA tensors: sums of whole numbers are exact, all ranks hold the same bits, and what one process
// computes from the mean gradient equals their common result.

#include "gpu/support/adam.hpp"
#include "gpu/support/trainer.hpp"
#include "gpu/support/world.hpp"

using namespace ddp::test::card;

namespace {

/// All ranks hold these bytes; compared over the host's transport.
void expect_same_on_all_ranks(const Rank& at, const std::string& bytes, const char* what) {
  auto mine = static_cast<int64_t>(std::hash<std::string>{}(bytes));
  std::vector<int64_t> all(static_cast<size_t>(at.size));
  const ddp_tensor input = flat(&mine, DDP_I64, 1, kCpu), output = flat(all.data(), DDP_I64, at.size, kCpu);
  OK(ddp_group_all_gather(at.group, &input, &output, nullptr));
  for (const int64_t theirs : all) expect(theirs == all[0], std::string(what) + ": the same bits on all ranks");
}

Plan plan_for(const Rank& at) {
  Plan plan;
  plan.place = at.place;
  plan.rank = at.rank;
  plan.fine = false;
  return plan;
}

double sum_of(int size, int step, size_t p, int64_t i) {
  double sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += whole_gradient(rank, step, p, i);
  return sum;
}

ddp_world_case(sums_of_whole_numbers_are_exact, 2, 3, 4) {
  for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_C64})
    for (const bool own : {false, true}) {
      Plan plan = plan_for(at);
      plan.dtype = dtype;
      plan.own_gradients = own;
      plan.options = [](ddp_model_options& options) { options.reduce = DDP_SUM; };
      Trainer t(at.group, plan);
      for (int step = 0; step < 2; ++step) {
        t.pass(step);
        expect_same_bytes(t.grad_bytes(), t.expected_grads([&](size_t p, int64_t i) { return sum_of(at.size, step, p, i); }),
                          dtype_name(dtype));
      }
    }
}

ddp_world_case(means_are_the_same_bits_everywhere_and_near_the_exact_ones, 2, 3) {
  Plan plan = plan_for(at);
  plan.fine = true;
  Trainer t(at.group, plan);
  t.pass(7);
  const std::string bytes = t.grad_bytes();
  expect_same_on_all_ranks(at, bytes, "means");
  size_t k = 0;
  for (size_t p = 0; p < plan.counts.size(); ++p)
    for (int64_t i = 0; i < plan.counts[p]; ++i, ++k) {
      double sum = 0, magnitude = 0;
      for (int rank = 0; rank < at.size; ++rank) {
        sum += static_cast<double>(static_cast<float>(fine_gradient(rank, 7, p, i)));
        magnitude += std::abs(fine_gradient(rank, 7, p, i));
      }
      const double got = get_element(DDP_F32, bytes.data(), k);
      expect(std::abs(got - sum / at.size) <= (at.size + 1) * 0x1p-24 * magnitude,
             "a mean within the rounding of its additions");
    }
}

std::string train(const Rank& at, const AdamWays& ways, int steps) {
  Plan plan = plan_for(at);
  plan.own_gradients = ways.own_gradients;
  Trainer t(at.group, plan);
  const OptimizerHandle optimizer = adam(t.model.get(), ways);
  for (int step = 0; step < steps; ++step) {
    t.pass(step);
    OK(ddp_optimizer_step(optimizer.get(), t.stream.get()));
  }
  OK(ddp_model_check_replicas(t.model.get(), t.stream.get()));
  return t.value_bytes();
}

/// One process on the CPU that is given the mean of the ranks' gradients.
std::string train_alone(int ranks, int steps) {
  const GroupHandle group = alone();
  Plan plan;
  plan.place = kCpu;
  Trainer t(group.get(), plan);
  const OptimizerHandle optimizer = adam(t.model.get(), {});
  for (int step = 0; step < steps; ++step) {
    OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
    for (auto p = plan.counts.size(); p-- > 0;) {
      const std::string mean =
          encoded(DDP_F32, plan.counts[p], [&](int64_t i) { return sum_of(ranks, step, p, i) / ranks; });
      std::memcpy(t.grads[p], mean.data(), mean.size());
      OK(ddp_model_mark_ready(t.model.get(), static_cast<int32_t>(p), nullptr));
    }
    OK(ddp_model_end_backward(t.model.get(), nullptr));
    OK(ddp_optimizer_step(optimizer.get(), nullptr));
  }
  return t.value_bytes();
}

ddp_case(two_hundred_steps_are_those_of_one_process) {
  const int steps = 200;
  run_world(
      2, [&](const Rank& at) { expect_same_bytes(train(at, {}, steps), train_alone(2, steps), "parameters"); },
      30'000 + 5 * steps * collective_ms(2));
}

ddp_world_case(every_way_to_step_gives_the_bits_of_the_plain_one, 2, 4) {
  const std::string plain = train(at, {}, 5);
  for (const bool own : {false, true})
    for (const bool shard : {false, true})
      for (const bool in_backward : {false, true})
        expect_same_bytes(train(at, {shard, in_backward, own, 0}, 5), plain,
                          std::string(shard ? "sharded " : "") + (in_backward ? "in backward" : ""));
  const std::string clipped = train(at, {false, false, false, 2.0}, 5);
  expect(clipped != plain, "clipping does something");
  expect_same_bytes(train(at, {true, true, false, 2.0}, 5), clipped, "clipped, sharded, in backward");
}

ddp_world_case(each_rank_may_keep_its_gradients_where_it_likes, 2) {
  const std::string plain = train(at, {}, 3);
  const bool own = at.rank == 0;
  for (const bool shard : {false, true})
    for (const bool in_backward : {false, true})
      expect_same_bytes(train(at, {shard, in_backward, own, 0}, 3), plain, "gradients in different memory");
}

ddp_world_case(gradients_of_16_bits_on_the_wire_are_exact_where_numbers_fit, 2) {
  for (const ddp_dtype wire : {DDP_F16, DDP_BF16})
    for (const bool own : {false, true}) {
      Plan plan = plan_for(at);
      plan.own_gradients = own;
      plan.options = [wire](ddp_model_options& options) { options.wire = wire; };
      Trainer t(at.group, plan);
      t.pass(1);
      expect_same_bytes(t.grad_bytes(), t.expected_grads([](size_t p, int64_t i) { return sum_of(2, 1, p, i) / 2; }),
                        "means of 16 bits");
    }
}

/// The sum of ranks lo to hi in the tree of include/BITS.md.
float tree_sum_of(int lo, int hi, const std::function<float(int)>& leaf) {
  if (hi - lo == 1) return leaf(lo);
  int half = 1;
  while (2 * half < hi - lo) half *= 2;
  return tree_sum_of(lo, lo + half, leaf) + tree_sum_of(lo + half, hi, leaf);
}

/// Means in the tree, and steps that are those of the same model in host memory.
ddp_world_case(reproducible_groups_have_the_bits_of_the_cpu, 2, 3) {
  auto options = defaults<ddp_group_options>();
  options.device_index = at.place.device;
  options.reproducible = 1;
  ddp_group* made = nullptr;
  OK(ddp_group_split(at.group, 0, at.rank, &options, &made));
  const GroupHandle group(made);
  Plan plan = plan_for(at);
  plan.fine = true;
  Plan in_host = plan;
  in_host.place = kCpu;
  Trainer on_gpu(made, plan), on_cpu(made, in_host);
  const OptimizerHandle gpu_adam = adam(on_gpu.model.get(), {}), cpu_adam = adam(on_cpu.model.get(), {});
  for (int step = 0; step < 3; ++step) {
    on_gpu.pass(step);
    on_cpu.pass(step);
    const auto mean = [&](size_t p, int64_t i) {
      const auto leaf = [&](int rank) { return static_cast<float>(fine_gradient(rank, step, p, i)); };
      return tree_sum_of(0, at.size, leaf) / static_cast<float>(at.size);
    };
    expect_same_bytes(on_gpu.grad_bytes(), on_gpu.expected_grads(mean), "means in the tree");
    OK(ddp_optimizer_step(gpu_adam.get(), on_gpu.stream.get()));
    OK(ddp_optimizer_step(cpu_adam.get(), nullptr));
    expect_same_bytes(on_gpu.value_bytes(), on_cpu.value_bytes(), "step " + std::to_string(step));
  }
}

ddp_world_case(gradients_count_by_their_weights, 2) {
  Plan plan = plan_for(at);
  plan.options = [](ddp_model_options& options) { options.divisor = DDP_DIVISOR_WEIGHTS; };
  Trainer t(at.group, plan);
  OK(ddp_model_set_weight(t.model.get(), at.rank == 0 ? 3.0 : 1.0));
  t.pass(0);
  expect_same_bytes(t.grad_bytes(), t.expected_grads([](size_t p, int64_t i) {
    return (3 * whole_gradient(0, 0, p, i) + whole_gradient(1, 0, p, i)) / 4;
  }),
                    "weighted");
  if (at.rank == 1)
    OK(ddp_model_skip_backward(t.model.get(), t.stream.get()));
  else
    t.pass(1);
  expect_same_bytes(t.grad_bytes(), t.expected_grads([](size_t p, int64_t i) { return whole_gradient(0, 1, p, i); }),
                    "one rank skipped");
}

ddp_world_case(parameters_and_buffers_begin_as_those_of_rank_0, 2) {
  const Stream stream(at.place);
  const Memory value(at.place, 4), buffer(at.place, 4);
  value.write(encoded_one(10.0F + static_cast<float>(at.rank)));
  buffer.write(encoded_one(20.0F + static_cast<float>(at.rank)));
  ddp_model* made = nullptr;
  OK(ddp_model_create(at.group, nullptr, &made));
  const ModelHandle model(made);
  const ddp_tensor v = flat(value.data(), DDP_F32, 1, at.place), b = flat(buffer.data(), DDP_F32, 1, at.place);
  OK(ddp_model_add_parameter(made, "value", &v, nullptr, nullptr));
  OK(ddp_model_add_buffer(made, "buffer", &b, nullptr));
  OK(ddp_model_commit(made, stream.get()));
  stream.wait();
  expect(value.read() == encoded_one(10) && buffer.read() == encoded_one(20), "rank 0's values");
  buffer.write(encoded_one(30.0F + static_cast<float>(at.rank)));
  OK(ddp_model_sync_buffers(made, 1, stream.get()));
  stream.wait();
  expect(buffer.read() == encoded_one(31), "rank 1's buffer");
  if (at.rank == 1) value.write(encoded_one(11));
  FAILS(DDP_ERROR_MISMATCH, ddp_model_check_replicas(made, stream.get()), "value");
}

ddp_world_case(collectives_take_cuda_tensors, 3) {
  sum_of_ranks(at);
  const Stream stream(at.place);
  const Memory part(at.place, 8), whole(at.place, 24);
  part.write(encoded_one(1.0F + static_cast<float>(at.rank)) + encoded_one(-1.0F));
  const ddp_tensor p = flat(part.data(), DDP_F32, 2, at.place), w = flat(whole.data(), DDP_F32, 6, at.place);
  OK(ddp_group_all_gather(at.group, &p, &w, stream.get()));
  OK(ddp_group_reduce_scatter(at.group, &w, &p, DDP_SUM, stream.get()));
  stream.wait();
  expect(part.read() == encoded_one(3.0F * (1.0F + static_cast<float>(at.rank))) + encoded_one(-3.0F),
         "the part that was reduced");
  OK(ddp_group_broadcast(at.group, &p, 2, stream.get()));
  stream.wait();
  expect(part.read() == encoded_one(9) + encoded_one(-3), "rank 2's part");
  part.write(encoded_one(at.rank == 1 ? NAN : 1.0F) + encoded_one(static_cast<float>(at.rank)));
  OK(ddp_group_all_reduce(at.group, &p, DDP_MAX, stream.get()));
  stream.wait();
  expect(part.read().substr(4) == encoded_one(2), "the largest");
}

ddp_world_case(a_gradient_missing_on_one_rank_is_named_on_all, 2) {
  Trainer t(at.group, plan_for(at));
  OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
  for (int32_t p = t.count(); p-- > 0;)
    if (at.rank != 1 || p != 3) OK(ddp_model_mark_ready(t.model.get(), p, t.stream.get()));
  FAILS(DDP_ERROR_INVALID_STATE, ddp_model_end_backward(t.model.get(), t.stream.get()), "p3");
  OK(ddp_model_zero_grad(t.model.get(), t.stream.get()));
  t.pass(2);
  expect_same_bytes(t.grad_bytes(), t.expected_grads([](size_t p, int64_t i) { return sum_of(2, 2, p, i) / 2; }),
                    "the pass after it");
}

ddp_world_case(local_steps_and_averages_of_parameters_work, 2) {
  Trainer t(at.group, plan_for(at));
  const OptimizerHandle optimizer = adam(t.model.get(), {});
  for (int step = 0; step < 3; ++step) {
    t.pass(step, DDP_PASS_LOCAL);
    OK(ddp_optimizer_step(optimizer.get(), t.stream.get()));
  }
  OK(ddp_model_average_parameters(t.model.get(), t.stream.get()));
  expect_same_on_all_ranks(at, t.value_bytes(), "averaged parameters");
  OK(ddp_model_check_replicas(t.model.get(), t.stream.get()));
}

gpu_cases(need_world());

}  // namespace
