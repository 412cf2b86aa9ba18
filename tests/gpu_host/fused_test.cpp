// SPDX-License-Identifier: Apache-2.0
// Steps that follow a bucket within the pass, and steps divided among the ranks, on GPUs: the same bits as the step at the
// end, and as the CPU's.
#include <cmath>
#include <cstring>
#include <limits>

#include "core/float16.hpp"
#include "model/model.hpp"
#include "optim/adam.hpp"
#include "optim/rules.hpp"
#include "optim/sgd.hpp"
#include "support/gpu_world.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {
namespace {

const std::vector<int64_t> kShapes = {7, 5000, 1, 1024, 3000, 64, 20'000, 900};
using Bytes = std::vector<uint8_t>;

struct FusedGpuWays {
  bool on_gpu = true;
  bool shard = false;
  bool in_backward = false;
  bool owned_grads = false;
  bool undo = true;
  bool momentum = false;  // SGD with momentum; else AdamW
  double max_norm = 0;
  ddp_nonfinite nonfinite = DDP_NONFINITE_KEEP;
  bool master_weights = false;
  ddp_dtype dtype = DDP_F32;
  ddp_unused unused = DDP_UNUSED_ERROR;
};

std::string text_of(const FusedGpuWays& ways) {
  return std::string(ways.shard ? "sharded " : "") + (ways.in_backward ? "in backward " : "") +
         (ways.owned_grads ? "owned " : "") + (ways.momentum ? "SGD " : "AdamW ") + (ways.max_norm > 0 ? "clipped " : "") +
         dtype_name(ways.dtype) + (ways.on_gpu ? "" : " on the CPU");
}

void set_number(uint8_t* at, ddp_dtype dtype, double value) {
  const auto single = static_cast<float>(value);
  const uint16_t half = float_to_bfloat(single);
  if (dtype == DDP_F32) std::memcpy(at, &single, 4);
  if (dtype == DDP_BF16) std::memcpy(at, &half, 2);
}

Bytes numbers(ddp_dtype dtype, int64_t count, const std::function<double(int64_t)>& value) {
  Bytes bytes(static_cast<size_t>(count * dtype_size(dtype)));
  for (int64_t i = 0; i < count; ++i) set_number(bytes.data() + i * dtype_size(dtype), dtype, value(i));
  return bytes;
}

/// One rank's model and optimizer, on its GPU or in host memory.
struct FusedGpu {
  group::Group& group;
  int rank;
  FusedGpuWays ways;
  std::unique_ptr<GpuStream> stream;
  std::vector<GpuArray> gpu_values, gpu_grads;
  std::vector<Bytes> host_values, host_grads;
  std::shared_ptr<model::Model> model;
  std::shared_ptr<optim::BuiltinOptimizer> optimizer;

  FusedGpu(group::Group& of, int own_rank, const FusedGpuWays& asked) : group(of), rank(own_rank), ways(asked) {
    if (ways.on_gpu) stream = std::make_unique<GpuStream>(rank);
    ddp_model_options options{};
    options.first_bucket_bytes = 8'000;
    options.bucket_bytes = 60'000;
    options.unused = ways.unused;
    model = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    for (size_t p = 0; p < kShapes.size(); ++p) add(p);
    make_optimizer();
    model->commit(stream_of());
  }
  [[nodiscard]] void* stream_of() const { return stream == nullptr ? nullptr : stream->get(); }
  void add(size_t p) {
    const Bytes start = numbers(ways.dtype, kShapes[p],
                                [p](int64_t i) { return std::sin(static_cast<double>(i) + static_cast<double>(p)); });
    host_values.push_back(start);
    host_grads.emplace_back(start.size());
    Tensor value = flat_tensor(host_values[p].data(), ways.dtype, kShapes[p]);
    Tensor grad = flat_tensor(host_grads[p].data(), ways.dtype, kShapes[p]);
    if (ways.on_gpu) {
      for (auto* arrays : {&gpu_values, &gpu_grads}) arrays->emplace_back(rank, static_cast<int64_t>(start.size()));
      gpu_values[p].poke(start);
      value = gpu_values[p].tensor(group, ways.dtype);
      grad = gpu_grads[p].tensor(group, ways.dtype);
    }
    model->add_parameter("p" + std::to_string(p), value, ways.owned_grads ? nullptr : &grad);
  }
  void make_optimizer() {
    const auto fill = [&](auto& options) {
      options.shard = ways.shard;
      options.in_backward = ways.in_backward;
      options.undo = ways.undo;
      options.max_norm = ways.max_norm;
      options.nonfinite = ways.nonfinite;
      options.master_weights = ways.master_weights;
    };
    if (ways.momentum) {
      SgdOptions options;
      options.momentum = 0.9;
      options.weight_decay = 0.01;
      fill(options);
      optimizer = std::make_shared<optim::Sgd>(model, options, options);
    } else {
      AdamOptions options;
      fill(options);
      optimizer = std::make_shared<optim::Adam>(model, options, options);
    }
    if (optimizer->in_passes() != nullptr) model->optimizer_slot().attach(optimizer);
  }
  void write_grad(int step, size_t p, double extra) {
    const Bytes data = numbers(ways.dtype, kShapes[p], [&](int64_t i) {
      return i == 0 && extra != 0
                 ? extra
                 : static_cast<double>((rank + 1) * ((i * 7 + step * 29 + static_cast<int64_t>(p)) % 33 - 16)) / 64;
    });
    void* const to = model->table().parameter(static_cast<int32_t>(p)).grad.data;
    if (ways.on_gpu) {
      stream->synchronize();
      expect(fake_gpu::poke(to, data.data(), static_cast<int64_t>(data.size())), "poked");
    } else {
      std::memcpy(to, data.data(), data.size());
    }
  }
  void pass(int step, double extra = 0, size_t without = SIZE_MAX) {
    for (size_t p = 0; p < kShapes.size(); ++p) write_grad(step, p, p == 3 ? extra : 0);
    model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = kShapes.size(); p-- > 0;)
      if (p != without) model->pass().mark_ready(static_cast<int32_t>(p), stream_of());
    model->end_backward(stream_of());
  }
  [[nodiscard]] Bytes all_values() {
    Bytes all;
    if (stream != nullptr) stream->synchronize();
    for (size_t p = 0; p < kShapes.size(); ++p) {
      const Bytes one = ways.on_gpu ? gpu_values[p].peek<uint8_t>() : host_values[p];
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
};

/// The parameters of all ranks after some steps, one of them with a gradient that is not finite if the way skips such.
Bytes train(int size, const FusedGpuWays& ways) {
  std::vector<Bytes> by_rank(static_cast<size_t>(size));
  const FakeGpus gpus(static_cast<uint64_t>(size) + 1);
  run_gpu_groups(size, [&](group::Group& group, int rank) {
    FusedGpu world(group, rank, ways);
    for (int step = 0; step < 5; ++step) {
      const bool bad = step == 2 && ways.nonfinite == DDP_NONFINITE_SKIP;
      world.pass(step, bad && rank == 0 ? std::numeric_limits<double>::infinity() : 0);
      world.optimizer->step(world.stream_of());
    }
    by_rank[static_cast<size_t>(rank)] = world.all_values();
    group.barrier();
  });
  FakeGpus::expect_correct(text_of(ways));
  FakeGpus::expect_nothing_left();
  for (const Bytes& each : by_rank) expect(each == by_rank.front(), text_of(ways) + ": all ranks hold the same");
  return by_rank.front();
}

void every_way_gives_the_bits_of_the_step_at_the_end(void**) {
  for (const int size : {1, 2, 4})
    for (const bool momentum : {false, true}) {
      FusedGpuWays plain;
      plain.momentum = momentum;
      plain.on_gpu = false;
      const Bytes wanted = train(size, plain);
      for (const bool shard : {false, true})
        for (const bool in_backward : {false, true})
          for (const bool owned : {false, true}) {
            FusedGpuWays ways = plain;
            ways.on_gpu = true;
            ways.shard = shard;
            ways.in_backward = in_backward;
            ways.owned_grads = owned;
            expect(train(size, ways) == wanted, std::to_string(size) + " ranks, " + text_of(ways) + ": the CPU's bits");
          }
    }
}

void clipping_and_skipping_decide_alike(void**) {
  for (const int size : {1, 2, 4}) {
    FusedGpuWays plain;
    plain.on_gpu = false;
    plain.max_norm = 0.5;
    plain.nonfinite = DDP_NONFINITE_SKIP;
    const Bytes wanted = train(size, plain);
    for (const bool shard : {false, true})
      for (const bool in_backward : {false, true}) {
        FusedGpuWays ways = plain;
        ways.on_gpu = true;
        ways.shard = shard;
        ways.in_backward = in_backward;
        expect(train(size, ways) == wanted, std::to_string(size) + " ranks, " + text_of(ways) + ": the CPU's bits");
      }
  }
}

void sixteen_bits_with_master_weights_too(void**) {
  FusedGpuWays plain;
  plain.on_gpu = false;
  plain.dtype = DDP_BF16;
  plain.master_weights = true;
  const Bytes wanted = train(2, plain);
  for (const bool shard : {false, true})
    for (const bool in_backward : {false, true}) {
      FusedGpuWays ways = plain;
      ways.on_gpu = true;
      ways.shard = shard;
      ways.in_backward = in_backward;
      expect(train(2, ways) == wanted, text_of(ways) + ": the CPU's bits");
    }
}

void parameters_that_may_be_unused_wait_for_the_end_of_the_pass(void**) {
  FusedGpuWays plain;
  plain.on_gpu = false;
  plain.unused = DDP_UNUSED_ALLOW;
  const Bytes wanted = train(2, plain);
  for (const bool shard : {false, true}) {
    FusedGpuWays ways = plain;
    ways.on_gpu = true;
    ways.shard = shard;
    ways.in_backward = true;
    expect(train(2, ways) == wanted, text_of(ways) + ": the CPU's bits");
  }
}

void a_void_pass_takes_its_steps_back(void**) {
  for (const bool shard : {false, true}) {
    FusedGpuWays ways;
    ways.shard = shard;
    ways.in_backward = true;
    const FakeGpus gpus;
    run_gpu_groups(2, [&](group::Group& group, int rank) {
      FusedGpu world(group, rank, ways);
      for (int step = 0; step < 2; ++step) {
        world.pass(step);
        world.optimizer->step(world.stream_of());
      }
      const Bytes before = world.all_values();
      // The parameter that is missing belongs to the last bucket, so the others have been updated by then.
      expect_contains(expect_error(DDP_ERROR_INVALID_STATE, [&] { world.pass(2, 0, rank == 1 ? 0 : SIZE_MAX); }), "\"p0\"");
      expect(world.all_values() == before, text_of(ways) + ": as before the pass");
      world.pass(2);
      world.optimizer->step(world.stream_of());
      expect(world.all_values() != before, "and on");
      group.barrier();
    });
    FakeGpus::expect_correct(text_of(ways));
    FakeGpus::expect_nothing_left();
  }
}

void a_step_within_a_captured_pass_is_refused(void**) {
  FusedGpuWays ways;
  ways.in_backward = true;
  const FakeGpus gpus;
  run_gpu_groups(1, [&](group::Group& group, int rank) {
    FusedGpu world(group, rank, ways);
    for (int step = 0; step < 2; ++step) {
      world.pass(step);
      world.optimizer->step(world.stream_of());
    }
    expect(fake_gpu::begin_capture(world.stream_of(), fake_gpu::CaptureMode::kThreadLocal), "captured");
    world.model->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = kShapes.size(); p-- > 0;) world.model->pass().mark_ready(static_cast<int32_t>(p), world.stream_of());
    expect_contains(expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->end_backward(world.stream_of()); }),
                    "CUDA graph");
    static_cast<void>(fake_gpu::end_capture(world.stream_of()));
  });
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_test(every_way_gives_the_bits_of_the_step_at_the_end),
      ddp_test(clipping_and_skipping_decide_alike),
      ddp_test(sixteen_bits_with_master_weights_too),
      ddp_test(parameters_that_may_be_unused_wait_for_the_end_of_the_pass),
      ddp_test(a_void_pass_takes_its_steps_back),
      ddp_test(a_step_within_a_captured_pass_is_refused),
  };
  return cmocka_run_group_tests_name("gpu_fused", tests, nullptr, nullptr);
}
