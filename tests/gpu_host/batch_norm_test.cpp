// SPDX-License-Identifier: Apache-2.0
// Batch normalisation on GPUs against the same call in host memory, which conformance/batch_norm_test.cpp compares with
// formulas.
#include "extra/batch_norm/batch_norm.hpp"

#include "device/cpu/arrays.hpp"
#include "support/batch_norm_oracle.hpp"
#include "support/check.hpp"
#include "support/mixed_model.hpp"

/// One array twice: in host memory and on the GPU.
struct Twin {
  std::vector<std::byte> bytes;
  Tensor host;
  GpuArray array;
  Tensor device;

  Twin(group::Group& group, int rank, ddp_dtype dtype, const std::vector<int64_t>& shape,
       const std::vector<double>& values = {})
      : bytes(static_cast<size_t>(count_of(shape) * dtype_size(dtype))), array(rank, static_cast<int64_t>(bytes.size())) {
    host.dtype = dtype;
    host.ndim = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), host.shape.begin());
    host.count = count_of(shape);
    host.data = bytes.data();
    for (size_t i = 0; i < values.size(); ++i)
      cpu::convert(DDP_F64, &values[i], dtype, host.data + static_cast<int64_t>(i) * dtype_size(dtype), 1);
    array.poke(bytes);
    device = host;
    device.data = static_cast<std::byte*>(array.data());
    device.device_index = rank;
    group.gpu().bind(device, "a tensor of the test");
  }
  static int64_t count_of(const std::vector<int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }
  void expect_same_bits(const char* what) const {
    expect(array.peek<std::byte>() == bytes, std::string("the bits of host memory: ") + what);
  }
  /// Within `units` of the last place of its dtype and 1e-12 of 1.
  void expect_near(double units, const char* what) const {
    const std::vector<double> wanted = numbers(bytes), got = numbers(array.peek<std::byte>());
    const double unit = host.dtype == DDP_F64   ? 0x1p-53
                        : host.dtype == DDP_F32 ? 0x1p-24
                        : host.dtype == DDP_F16 ? 0x1p-11
                                                : 0x1p-8;
    for (size_t i = 0; i < wanted.size(); ++i)
      expect(std::abs(got[i] - wanted[i]) <= units * unit * std::abs(wanted[i]) + 1e-12,
             std::string(what) + " is " + std::to_string(got[i]) + " and " + std::to_string(wanted[i]) + " in host memory");
  }
  [[nodiscard]] std::vector<double> numbers(const std::vector<std::byte>& from) const {
    std::vector<double> values(static_cast<size_t>(host.count));
    cpu::convert(host.dtype, from.data(), DDP_F64, values.data(), host.count);
    return values;
  }
};

/// All tensors of one layer.
struct Layer {
  Twin x, y, dy, dx, weight, bias, running_mean, running_var, mean, invstd, dweight, dbias;

  Layer(group::Group& group, int rank, ddp_dtype dtype, const std::vector<int64_t>& shape, const Batch& batch)
      : x(group, rank, dtype, shape, batch.x),
        y(group, rank, dtype, shape),
        dy(group, rank, dtype, shape, batch.dy),
        dx(group, rank, dtype, shape),
        weight(group, rank, DDP_F32, {shape[1]}, ramp(shape[1], 0.5)),
        bias(group, rank, DDP_F64, {shape[1]}, ramp(shape[1], -2)),
        running_mean(group, rank, DDP_F32, {shape[1]}, ramp(shape[1], 7)),
        running_var(group, rank, DDP_F64, {shape[1]}, ramp(shape[1], 2)),
        mean(group, rank, DDP_F64, {shape[1]}),
        invstd(group, rank, DDP_F64, {shape[1]}),
        dweight(group, rank, DDP_F64, {shape[1]}, ramp(shape[1], 4)),
        dbias(group, rank, DDP_F32, {shape[1]}, ramp(shape[1], 3)) {}
  static std::vector<double> ramp(int64_t channels, double first) {
    std::vector<double> values(static_cast<size_t>(channels));
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<double>(i % 3);
    return values;
  }
  [[nodiscard]] batch_norm::Forward forward(Tensor Twin::*place) const {
    return {x.*place,           weight.*place, bias.*place, running_mean.*place,
            running_var.*place, y.*place,      mean.*place, invstd.*place};
  }
  [[nodiscard]] batch_norm::Backward backward(Tensor Twin::*place, int64_t count) const {
    return {dy.*place, x.*place, weight.*place, mean.*place, invstd.*place, count, dx.*place, dweight.*place, dbias.*place};
  }
  void run(group::Group& group, const ddp_batch_norm_options& options, void* stream) const {
    const int64_t count = batch_norm::forward(group, options, forward(&Twin::device), stream);
    batch_norm::backward(group, options, backward(&Twin::device, count), stream);
  }
  /// Forward joins in rank order as the CPU does; backward adds in NCCL's order.
  void expect_that_of_the_host(group::Group& group, const ddp_batch_norm_options& options) const {
    const int64_t count = batch_norm::forward(group, options, forward(&Twin::host));
    batch_norm::backward(group, options, backward(&Twin::host, count));
    y.expect_same_bits("y");
    running_mean.expect_same_bits("running_mean");
    running_var.expect_same_bits("running_var");
    mean.expect_same_bits("saved_mean");
    invstd.expect_same_bits("saved_invstd");
    dweight.expect_same_bits("dweight");
    dbias.expect_same_bits("dbias");
    dx.expect_near(2, "dx");
  }
};

Layer make_layer(group::Group& group, int rank, ddp_dtype dtype, std::vector<int64_t> shape, int64_t rows) {
  const int64_t inner = std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
  const Batch batch = make_batch(rank, rows, shape[0], inner, 0.25);
  shape.insert(shape.begin(), rows);
  return {group, rank, dtype, shape, batch};
}

void correct_and_nothing_left() { FakeGpus::expect_clean(); }

ddp_case(it_is_what_host_memory_gives) {
  for (const int size : {1, 2, 3, 4}) {
    const FakeGpus gpus(static_cast<uint64_t>(size) * 3);
    run_gpu_groups(size, [&](group::Group& group, int rank) {
      const GpuStream stream(rank);
      for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16})
        for (const std::vector<int64_t>& shape : {std::vector<int64_t>{37}, {1, 2}, {5, 3, 3}, {3, 41, 26}})
          for (const int32_t accumulate : {0, 1}) {
            ddp_batch_norm_options options = norm_options();
            options.accumulate = accumulate;
            const Layer layer = make_layer(group, rank, dtype, shape, kRows[rank]);
            layer.run(group, options, stream.get());
            stream.synchronize();
            layer.expect_that_of_the_host(group, options);
          }
      group.barrier();
    });
    correct_and_nothing_left();
  }
}

ddp_case(without_training_each_rank_is_alone) {
  run_on_gpus(2, [&](group::Group& group, int rank) {
    const GpuStream stream(rank);
    ddp_batch_norm_options options = norm_options();
    options.training = 0;
    for (int i = 0; i < rank + 1; ++i) {
      const Layer layer = make_layer(group, rank, DDP_F32, {5, 7}, 4);
      layer.run(group, options, stream.get());
      stream.synchronize();
      layer.expect_that_of_the_host(group, options);
    }
  });
  correct_and_nothing_left();
}

ddp_case(the_host_waits_for_no_device) {
  run_on_gpus(2, [&](group::Group& group, int rank) {
    const GpuStream stream(rank);
    const Layer layer = make_layer(group, rank, DDP_F32, {5, 7}, 4);
    layer.run(group, norm_options(), stream.get());
    stream.synchronize();
    expect_no_wait(group, [&] {
      for (int round = 0; round < 3; ++round) layer.run(group, norm_options(), stream.get());
    });
    stream.synchronize();
    group.barrier();
  });
  correct_and_nothing_left();
}

ddp_case(layers_on_two_streams_share_memory_without_a_race) {
  const FakeGpus gpus(77);
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    const GpuStream first(rank), second(rank);
    const Layer a = make_layer(group, rank, DDP_F32, {5, 7}, 4), b = make_layer(group, rank, DDP_F32, {9, 3}, 2);
    a.run(group, norm_options(), first.get());
    b.run(group, norm_options(), second.get());
    for (const GpuStream* stream : {&first, &second}) stream->synchronize();
    a.expect_that_of_the_host(group, norm_options());
    b.expect_that_of_the_host(group, norm_options());
    group.barrier();
  });
  correct_and_nothing_left();
}

ddp_case(what_cannot_be_normalised_is_refused_before_anything_is_written) {
  for (const int size : {1, 3}) {
    run_on_gpus(size, [&](group::Group& group, int rank) {
      const GpuStream stream(rank);
      const Layer single = make_layer(group, rank, DDP_F32, {2}, rank == 0 ? 1 : 0);
      expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { single.run(group, norm_options(), stream.get()); }, {"single value"});
      const Layer nothing = make_layer(group, rank, DDP_F32, {2}, 0);
      expect_equal(batch_norm::forward(group, norm_options(), nothing.forward(&Twin::device), stream.get()), int64_t{0},
                   "count");
      if (size > 1) {
        ddp_batch_norm_options options = norm_options();
        if (rank == 2) options.epsilon = 0.4;
        const Layer layer = make_layer(group, rank, DDP_F32, {2}, 2);
        expect_error(DDP_ERROR_MISMATCH, [&] { layer.run(group, options, stream.get()); }, {"0.4"});
      }
      stream.synchronize();
      for (const Layer* layer : {&single, &nothing}) {
        layer->running_mean.expect_same_bits("running_mean");
        layer->mean.expect_same_bits("saved_mean");
      }
      group.barrier();
    });
    correct_and_nothing_left();
  }
}

ddp_case(all_tensors_lie_in_one_place) {
  run_on_gpus(1, [&](group::Group& group, int rank) {
    const Layer layer = make_layer(group, rank, DDP_F32, {2}, 3);
    batch_norm::Forward call = layer.forward(&Twin::device);
    call.bias = layer.bias.host;
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { batch_norm::forward(group, norm_options(), call); },
                 {"bias is in host memory"});
    batch_norm::Backward back = layer.backward(&Twin::host, 3);
    back.dweight = layer.dweight.device;
    expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { batch_norm::backward(group, norm_options(), back); },
                 {"dweight is on a GPU"});
  });
  correct_and_nothing_left();
}

ddp_case(a_graph_cannot_hold_it) {
  run_on_gpus(1, [&](group::Group& group, int rank) {
    const GpuStream stream(rank);
    const Layer layer = make_layer(group, rank, DDP_F32, {2}, 3);
    expect(fake_gpu::begin_capture(stream.get()), "capturing");
    expect_error(DDP_ERROR_INVALID_STATE, [&] { layer.run(group, norm_options(), stream.get()); }, {"CUDA graph"});
    (void)fake_gpu::end_capture(stream.get());
  });
  correct_and_nothing_left();
}

ddp_case(a_rank_whose_gpu_fails_ends_the_group_for_all) {
  for (const char* function : {"bn_moments", "alloc"}) {
    run_on_gpus(3, [&](group::Group& group, int rank) {
      const GpuStream stream(rank);
      group.gpu().connect();
      const Layer layer = make_layer(group, rank, DDP_F32, {5, 7}, 4);
      group.barrier();
      fake_gpu::Fault fault;
      fault.function = function;
      fault.device = 1;
      fault.kind = DDP_GPU_OUT_OF_MEMORY;
      if (rank == 1) fake_gpu::inject(fault);
      group.barrier();
      expect_error(rank == 1 ? DDP_ERROR_OUT_OF_MEMORY : DDP_ERROR_PEER_FAILED,
                   [&] { layer.run(group, norm_options(), stream.get()); }, {"GPU 1"});
    });
    fake_gpu::clear_faults();
    correct_and_nothing_left();
  }
}
