// SPDX-License-Identifier: Apache-2.0
// The group option `reproducible`: a model trained on GPUs is the model trained in host memory, bit for bit: parameters,
// gradients and the optimizer's state.
#include "gpu_host/reproducible_trainee.hpp"
#include "support/check.hpp"

constexpr ddp_dtype kFloats[] = {DDP_F32, DDP_F16, DDP_BF16};

std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (unsigned bits = 0; bits < 64; ++bits) {
    const Way way{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0, {},
                  (bits & 32) != 0};
    ways.push_back(way);
  }
  return ways;
}

ddp_case(trained_models_have_the_bits_of_host_memory) {
  for (const int size : {1, 2, 3, 4, 5}) {
    const FakeGpus gpus(static_cast<uint64_t>(size));
    run_reproducible(size, [&](group::Group& group, int rank) {
      const std::vector<Way> ways = all_ways();
      for (size_t w = 0; w < ways.size(); ++w) {
        const ddp_dtype dtype = kFloats[(w / 4 + w + static_cast<size_t>(size)) % 3];
        if (size != 3 && w % 7 != 0) continue;
        expect_equal_training(trained(group, dtype, ways[w], true), trained(group, dtype, ways[w], false),
                              std::string(dtype_name(dtype)) + ", way " + std::to_string(w) + ", " + std::to_string(size) +
                                  " ranks, rank " + std::to_string(rank));
      }
      group.barrier();
    });
    FakeGpus::expect_clean();
  }
}

ddp_case(terms_of_16_bits_have_the_bits_of_host_memory) {
  for (const int size : {3, 5}) {
    const FakeGpus gpus(7);
    run_reproducible(size, [&](group::Group& group, int) {
      for (const ddp_dtype dtype : {DDP_F32, DDP_F64})
        for (const ddp_dtype wire : {DDP_F16, DDP_BF16})
          for (unsigned bits = 0; bits < 8; ++bits) {
            const Way way{(bits & 1) != 0, false, (bits & 2) != 0, true, false, wire, (bits & 4) != 0};
            expect_equal_training(trained(group, dtype, way, true), trained(group, dtype, way, false),
                                  std::string(dtype_name(dtype)) + " as " + dtype_name(wire) + ", way " +
                                      std::to_string(bits) + ", " + std::to_string(size) + " ranks");
          }
      group.barrier();
    });
    FakeGpus::expect_clean();
  }
}

ddp_case(void_passes_and_ranks_out_of_data_do_as_in_host_memory) {
  const FakeGpus gpus(3);
  run_reproducible(3, [&](group::Group& group, int) {
    for (const bool weights : {false, true})
      for (const bool joins : {false, true}) {
        Way way;
        way.weights = weights;
        way.voids = !joins;
        way.joins = joins;
        expect_equal_training(trained(group, DDP_F32, way, true), trained(group, DDP_F32, way, false),
                              std::string(joins ? "joins" : "void") + (weights ? ", weights" : ""));
      }
    group.barrier();
  });
  FakeGpus::expect_clean();
}

/// From three ranks on.
ddp_case(without_the_option_the_bits_are_nccls) {
  run_on_gpus(3, with_reproducible(0), [&](group::Group& group, int) {
    expect(trained(group, DDP_F32, Way{}, true).values != trained(group, DDP_F32, Way{}, false).values, "a model");
    group.barrier();
  });
}

/// After the first steps nothing is allocated any more.
ddp_case(passes_allocate_nothing) {
  const FakeGpus gpus;
  run_reproducible(3, [&](group::Group& group, int rank) {
    Way way;
    way.weights = true;
    Trainee trainee(group, DDP_F32, way, true);
    expect_contains(trainee.plan(), "NCCL, reproducible");
    trainee.train();
    group.barrier();
    const int64_t before = fake_gpu::allocations();
    group.barrier();
    trainee.train();
    group.barrier();
    expect_equal(fake_gpu::allocations(), before, "allocations of rank " + std::to_string(rank));
    group.barrier();
  });
  FakeGpus::expect_correct();
}
