// SPDX-License-Identifier: Apache-2.0
// Passes of models whose gradients are on a GPU, or some of them. Their meaning is that of the CPU; here are the properties
// that is different: streams, the host that does not wait, races that the fake would find.

#include "model/model.hpp"
#include "model/uneven.hpp"
#include "support/check.hpp"
#include "support/gpu_world.hpp"

const std::vector<int64_t> kShapes = {1, 17, 1000, 3, 9000, 128, 77, 64};

enum class Memory { kOwned, kPrivate, kMixed };

ddp_model_options gpu_model_options() {
  return {.first_bucket_bytes = 4'000, .bucket_bytes = 20'000, .reduce = DDP_AVERAGE};
}

/// Whole numbers, so that every order of adding gives one sum.
float gradient(int rank, int pass, size_t parameter, int64_t i) {
  return static_cast<float>((rank + 1) * ((i * 7 + static_cast<int64_t>(parameter) * 13 + pass * 29) % 101 - 50));
}

double wanted_mean(int size, int pass, size_t parameter, int64_t i) {
  double sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += static_cast<double>(gradient(rank, pass, parameter, i));
  return sum;
}

struct GpuModel {
  group::Group& group;
  int rank;
  GpuStream compute;
  std::vector<GpuArray> values, grads, fresh;
  std::vector<std::vector<float>> host_values, host_grads;  // of every fourth parameter if mixed
  std::unique_ptr<model::Model> model;

  GpuModel(group::Group& of, int own_rank, Memory memory, const ddp_model_options& options = gpu_model_options())
      : group(of), rank(own_rank), compute(own_rank) {
    model = std::make_unique<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    for (size_t p = 0; p < kShapes.size(); ++p) {
      host_values.emplace_back(static_cast<size_t>(kShapes[p]), static_cast<float>(p));
      host_grads.emplace_back(static_cast<size_t>(kShapes[p]));
      for (auto* arrays : {&values, &grads, &fresh}) arrays->emplace_back(rank, kShapes[p] * 4);
      values.back().poke(host_values.back());
      add(p, memory);
    }
    model->commit(compute.get());
  }
  void add(size_t p, Memory memory) {
    const std::string name = "p" + std::to_string(p);
    if (memory == Memory::kMixed && p % 4 == 3) {
      const Tensor grad = flat_tensor(host_grads[p].data(), DDP_F32, kShapes[p]);
      model->add_parameter(name, flat_tensor(host_values[p].data(), DDP_F32, kShapes[p]), &grad);
      return;
    }
    const Tensor grad = grads[p].tensor(group, DDP_F32);
    const bool owned = memory == Memory::kOwned || (memory == Memory::kMixed && p % 4 == 1);
    model->add_parameter(name, values[p].tensor(group, DDP_F32), owned ? nullptr : &grad);
  }
  [[nodiscard]] const Tensor& grad(size_t p) const { return model->table().parameter(static_cast<int32_t>(p)).grad; }

  /// What backward does: write this pass's gradient on a stream and say so.
  void produce(int pass, size_t p, void* stream) {
    write(pass, p, stream);
    model->pass().mark_ready(static_cast<int32_t>(p), stream);
  }
  void write(int pass, size_t p, void* stream) {
    std::vector<float> data(static_cast<size_t>(kShapes[p]));
    for (int64_t i = 0; i < kShapes[p]; ++i) data[static_cast<size_t>(i)] = gradient(rank, pass, p, i);
    if (!grad(p).is_on_gpu()) {
      std::copy(data.begin(), data.end(), host_grads[p].begin());
      return;
    }
    fresh[p].poke(data);
    write_on(stream, fresh[p], grad(p).data);
  }
  [[nodiscard]] std::vector<float> read_grad(size_t p) {
    return grad(p).is_on_gpu() ? read_on(compute, rank, grad(p).data, kShapes[p]) : host_grads[p];
  }
  void expect_mean(int size, int pass, double divisor, const std::string& what) {
    for (size_t p = 0; p < kShapes.size(); ++p) {
      const std::vector<float> got = read_grad(p);
      for (int64_t i = 0; i < kShapes[p]; ++i) {
        const double wanted = wanted_mean(size, pass, p, i) / divisor;
        const double here = static_cast<double>(got[static_cast<size_t>(i)]);
        if (std::abs(here - wanted) > 1e-6 * std::abs(wanted))
          throw std::runtime_error(what + ": parameter " + std::to_string(p) + " element " + std::to_string(i) + " is " +
                                   std::to_string(here) + ", expected " + std::to_string(wanted));
      }
    }
  }
};

std::vector<size_t> order_of(int rank, int pass) {
  std::vector<size_t> order(kShapes.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(static_cast<unsigned>(rank * 131 + pass));
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

ddp_case(every_memory_order_and_stream_gives_the_mean) {
  for (const int size : {1, 2, 3, 4})
    for (const Memory memory : {Memory::kOwned, Memory::kPrivate, Memory::kMixed}) {
      const FakeGpus gpus(static_cast<uint64_t>(size) * 17 + 3);
      run_gpu_groups(size, [&](group::Group& group, int rank) {
        GpuModel world(group, rank, memory);
        const GpuStream other(rank);
        for (int pass = 0; pass < 4; ++pass) {
          world.model->begin_backward(DDP_PASS_REDUCE);
          for (const size_t p : order_of(rank, pass)) world.produce(pass, p, p % 2 == 0 ? world.compute.get() : other.get());
          world.model->end_backward(world.compute.get());
          world.expect_mean(size, pass, size,
                            "size " + std::to_string(size) + ", memory " + std::to_string(static_cast<int>(memory)) +
                                ", pass " + std::to_string(pass));
          other.synchronize();  // the test writes its inputs behind the curtain
        }
        group.barrier();
      });
      FakeGpus::expect_correct("size " + std::to_string(size) + ", memory " + std::to_string(static_cast<int>(memory)));
      FakeGpus::expect_nothing_left();
    }
}

ddp_case(the_host_waits_for_no_device_and_allocates_nothing) {
  for (const Memory memory : {Memory::kOwned, Memory::kPrivate}) {
    run_on_gpus(2, [&](group::Group& group, int rank) {
      GpuModel world(group, rank, memory);
      const auto pass = [&](int number) {
        world.model->begin_backward(DDP_PASS_REDUCE);
        for (size_t p = kShapes.size(); p-- > 0;) world.produce(number, p, world.compute.get());
        world.model->end_backward(world.compute.get());
      };
      pass(0);
      world.compute.synchronize();
      group.barrier();
      if (rank == 0) fake_gpu::clear_log();
      group.barrier();
      fake_gpu::pause_device(rank);
      pass(1);
      expect(fake_gpu::pending_on_device(rank) > 0, "nothing has run yet");
      group.barrier();
      expect_equal(fake_gpu::host_waits(), int64_t{0}, "waits of the host");
      expect_equal(fake_gpu::allocations(), int64_t{0}, "allocations");
      group.barrier();
      fake_gpu::resume_device(rank);
      world.expect_mean(2, 1, 2, "after the pause");
      group.barrier();
    });
  }
}

ddp_case(one_rank_needs_no_nccl_and_launches_nothing) {
  const FakeGpus gpus;
  fake_gpu::set_open_nccl_error("it is not there");
  run_gpu_groups(1, [&](group::Group& group, int rank) {
    GpuModel world(group, rank, Memory::kPrivate);
    world.model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = 0; p < kShapes.size(); ++p) world.write(0, p, world.compute.get());
    fake_gpu::clear_log();
    for (size_t p = 0; p < kShapes.size(); ++p) world.model->pass().mark_ready(static_cast<int32_t>(p), world.compute.get());
    world.model->end_backward(world.compute.get());
    for (const char* const work : {"move", "copy", "copy_word", "fill", "nccl.all_reduce", "alloc"})
      expect_equal(fake_gpu::calls(work), int64_t{0}, work);
    world.expect_mean(1, 0, 1, "one rank");
  });
  FakeGpus::expect_clean();
}

ddp_ranks_case(run_on_gpus, a_missing_gradient_is_named_on_every_rank_and_the_group_goes_on, 3) {
  GpuModel world(group, rank, Memory::kPrivate);
  world.model->begin_backward(DDP_PASS_REDUCE);
  for (size_t p = 0; p < kShapes.size(); ++p)
    if (rank != 1 || p != 4) world.produce(0, p, world.compute.get());
  expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->end_backward(world.compute.get()); }, {"rank 1", "\"p4\""});
  world.compute.synchronize();
  world.model->begin_backward(DDP_PASS_REDUCE);
  for (size_t p = 0; p < kShapes.size(); ++p) world.produce(1, p, world.compute.get());
  world.model->end_backward(world.compute.get());
  world.expect_mean(3, 1, 3, "the pass after it");
  group.barrier();
}

ddp_case(what_nobody_used_is_left_as_it_was) {
  for (const Memory memory : {Memory::kOwned, Memory::kPrivate}) {
    run_on_gpus(2, [&](group::Group& group, int rank) {
      ddp_model_options options = gpu_model_options();
      options.unused = DDP_UNUSED_ALLOW;
      GpuModel world(group, rank, memory, options);
      for (size_t p = 0; p < kShapes.size(); ++p) world.write(7, p, world.compute.get());
      world.compute.synchronize();  // the next gradients come through the same memory of the test
      world.model->begin_backward(DDP_PASS_REDUCE);
      for (size_t p = 0; p < kShapes.size(); ++p)
        if (p != 2 && (p != 5 || rank == 0)) world.produce(1, p, world.compute.get());
      world.model->end_backward(world.compute.get());
      expect(!world.model->pass().results().was_used(2) && world.model->pass().results().was_used(5), "who used what");
      const std::vector<float> untouched = world.read_grad(2);
      const std::vector<float> half = world.read_grad(5);
      for (int64_t i = 0; i < kShapes[2]; ++i)
        expect_equal(untouched[static_cast<size_t>(i)], gradient(rank, 7, 2, i), "untouched");
      for (int64_t i = 0; i < kShapes[5]; ++i)
        expect_equal(half[static_cast<size_t>(i)], gradient(0, 1, 5, i) / 2, "of one rank");
      group.barrier();
    });
  }
}

ddp_ranks_case(run_on_gpus, weights_and_skipped_ranks_count_as_on_the_cpu, 3) {
  ddp_model_options options = gpu_model_options();
  options.divisor = DDP_DIVISOR_WEIGHTS;
  GpuModel world(group, rank, Memory::kOwned, options);
  if (rank == 2) {
    skip_backward(*world.model, world.compute.get());
  } else {
    set_weight(*world.model, rank == 0 ? 1 : 3);
    world.model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = 0; p < kShapes.size(); ++p) world.produce(0, p, world.compute.get());
    world.model->end_backward(world.compute.get());
  }
  for (size_t p = 0; p < kShapes.size(); ++p) {
    const std::vector<float> got = world.read_grad(p);
    for (int64_t i = 0; i < kShapes[p]; ++i)
      expect_equal(got[static_cast<size_t>(i)], (gradient(0, 0, p, i) + 3 * gradient(1, 0, p, i)) / 4, "the weighted mean");
  }
  group.barrier();
}

ddp_case(a_rank_that_skips_takes_part_in_the_mean_by_the_world) {
  for (const Memory memory : {Memory::kOwned, Memory::kPrivate}) {
    run_on_gpus(2, [&](group::Group& group, int rank) {
      GpuModel world(group, rank, memory);
      for (size_t p = 0; p < kShapes.size(); ++p) world.write(3, p, world.compute.get());
      world.compute.synchronize();  // the next gradients come through the same memory of the test
      if (rank == 0) {
        skip_backward(*world.model, world.compute.get());
      } else {
        world.model->begin_backward(DDP_PASS_REDUCE);
        for (size_t p = 0; p < kShapes.size(); ++p) world.produce(0, p, world.compute.get());
        world.model->end_backward(world.compute.get());
      }
      for (size_t p = 0; p < kShapes.size(); ++p) {
        const std::vector<float> got = world.read_grad(p);
        for (int64_t i = 0; i < kShapes[p]; ++i)
          expect_equal(got[static_cast<size_t>(i)], gradient(1, 0, p, i) / 2, "half of the other's");
      }
      group.barrier();
    });
  }
}

ddp_ranks_case(run_on_gpus, sixteen_bits_on_the_wire_halve_what_travels, 2) {
  GpuStream stream(rank);
  GpuArray value(rank, 4096 * 4), grad(rank, 4096 * 4), fresh(rank, 4096 * 4);
  model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), gpu_model_options());
  const Tensor lent = grad.tensor(group, DDP_F32);
  value.poke(std::vector<float>(4096, 0));
  model.add_parameter("w", value.tensor(group, DDP_F32), &lent);
  model.set_hook(parts::Hook::sent_as(DDP_BF16));
  model.commit(stream.get());
  std::vector<float> data(4096);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(static_cast<int>(i % 64) * (rank + 1));
  fresh.poke(data);
  model.begin_backward(DDP_PASS_REDUCE);
  write_on(stream.get(), fresh, grad.data());
  model.pass().mark_ready(0, stream.get());
  model.end_backward(stream.get());
  const std::vector<float> got = read_on(stream, rank, grad.data(), 4096);
  for (size_t i = 0; i < got.size(); ++i) expect_equal(got[i], static_cast<float>(i % 64) * 1.5F, "the mean, exact in BF16");
  expect_contains(model.pass().describe_plan(), "sent as BF16");
  group.barrier();
}
