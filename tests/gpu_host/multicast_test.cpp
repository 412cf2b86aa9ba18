// SPDX-License-Identifier: Apache-2.0
// Sharded steps within the pass as one kernel over multicast: the parameters of the ordinary way where sums are exact in any
// order, and that way where it cannot be.
#include <atomic>

#include "collective/nccl/nccl_transport.hpp"
#include "gpu_host/multicast_trainee.hpp"

namespace ddp::test {
namespace {

int64_t fused_calls() { return fake_gpu::calls("fused_adam") + fake_gpu::calls("fused_sgd"); }

/// The parameters of all ranks after some steps.
MulticastBytes train(int size, const MulticastWays& ways, const ddp_group_options& options) {
  std::vector<MulticastBytes> by_rank(static_cast<size_t>(size));
  run_gpu_groups_with(size, options, [&](group::Group& group, int rank) {
    MulticastTrainee trainee(group, rank, ways);
    trainee.train(0, 5);
    by_rank[static_cast<size_t>(rank)] = trainee.all_values();
    group.barrier();
  });
  for (const MulticastBytes& each : by_rank) expect(each == by_rank.front(), "all ranks hold the same");
  return by_rank.front();
}

MulticastBytes train_on_cpu(int size, MulticastWays ways) {
  ways.on_gpu = false;
  const FakeGpus gpus;
  return train(size, ways, world_options());
}

void one_kernel_a_bucket_has_the_values_of_the_ordinary_way(void**) {
  for (const int size : {2, 4})
    for (const bool momentum : {false, true})
      for (const ddp_dtype dtype : {DDP_F32, DDP_BF16}) {
        MulticastWays ways;
        ways.momentum = momentum;
        ways.dtype = dtype;
        ways.master_weights = dtype == DDP_BF16 && momentum;
        ways.clip_value = momentum ? 0.02 : 0;
        const MulticastBytes wanted = train_on_cpu(size, ways);
        for (const int64_t looks : {0, 3}) {
          const FakeGpus gpus(static_cast<uint64_t>(size), looks);
          expect(train(size, ways, multicast_options()) == wanted, std::to_string(size) + " ranks: the CPU's bits");
          FakeGpus::expect_correct();
          FakeGpus::expect_nothing_left();
          expect(fused_calls() >= int64_t{size} * 4 * 2, "four passes of some buckets, on each rank");
          expect_equal(fused_calls() % (int64_t{size} * 4), int64_t{0}, "each bucket of each pass on each rank");
          expect_equal(fake_gpu::calls("nccl.reduce_scatter"), int64_t{0}, "the first pass reduces everywhere");
          expect_equal(fake_gpu::calls("nccl.all_gather"), fused_calls() / 4, "and gives what it has updated");
        }
      }
}

void a_sum_is_not_divided(void**) {
  MulticastWays ways;
  ways.reduce = DDP_SUM;
  const MulticastBytes wanted = train_on_cpu(3, ways);
  const FakeGpus gpus;
  expect(train(3, ways, multicast_options()) == wanted, "the CPU's bits");
  expect(fused_calls() > 0, "by the kernel");
  FakeGpus::expect_correct();
}

/// The mean lies in the own slice of the gradients, as behind every sharded pass.
void own_slices_of_gradients_are_means(void**) {
  const FakeGpus gpus;
  run_gpu_groups_with(2, multicast_options(), [&](group::Group& group, int rank) {
    MulticastTrainee trainee(group, rank, {});
    trainee.train(0, 2);
    trainee.stream->synchronize();
    const auto& slot = trainee.model->optimizer_slot();
    int64_t compared = 0;
    for (int32_t p = 0; p < trainee.model->table().parameter_count(); ++p)
      for (const OwnedSpan& part : slot.stage_of(*trainee.optimizer)->owned(p)) {
        std::vector<float> got(static_cast<size_t>(part.count));
        const auto* const grad = reinterpret_cast<const float*>(trainee.model->table().parameter(p).grad.data) + part.first;
        expect(fake_gpu::peek(got.data(), grad, part.count * 4), "peeked");
        for (int64_t i = 0; i < part.count; ++i) {
          const double one = static_cast<double>(((part.first + i) * 7 + 29 + p) % 9 - 4) / 64;
          expect_equal(got[static_cast<size_t>(i)], static_cast<float>(3 * one / 2), "the mean");
          ++compared;
        }
      }
    expect(compared > 0, "something is owned");
    group.barrier();
  });
  expect(fused_calls() > 0, "by the kernel");
}

void a_void_pass_takes_its_steps_back(void**) {
  const FakeGpus gpus;
  run_gpu_groups_with(2, multicast_options(), [&](group::Group& group, int rank) {
    MulticastTrainee trainee(group, rank, {});
    trainee.train(0, 2);
    const MulticastBytes before = trainee.all_values();
    // The parameter that is missing belongs to the last bucket, so the others have been updated by then.
    expect_contains(expect_error(DDP_ERROR_INVALID_STATE, [&] { trainee.pass(2, rank == 1 ? 0 : SIZE_MAX); }), "\"p0\"");
    expect(trainee.all_values() == before, "as before the pass");
    trainee.train(2, 3);
    expect(trainee.all_values() != before, "and on");
    group.barrier();
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

struct Machine {
  const char* what;
  int64_t multicast = 1;
  int32_t nccl_version = 22809;
};

/// The option is on, and something is missing: the ordinary way, with the same values.
void what_cannot_goes_the_ordinary_way(void**) {
  const auto expect_ordinary = [](const Machine& machine, const MulticastWays& ways, const ddp_group_options& options) {
    const MulticastBytes wanted = train_on_cpu(2, ways);
    const FakeGpus gpus;
    fake_gpu::Options fake;
    fake.nccl_looks = 3;
    fake.multicast = machine.multicast;
    fake.nccl_version = machine.nccl_version;
    fake_gpu::reset(fake);
    expect(train(2, ways, options) == wanted, std::string(machine.what) + ": the CPU's bits");
    expect_equal(fused_calls(), int64_t{0}, machine.what);
    FakeGpus::expect_correct(machine.what);
    FakeGpus::expect_nothing_left();
  };
  expect_ordinary({"the option is off"}, {}, world_options());
  expect_ordinary({"no device has multicast", 0}, {}, multicast_options());
  expect_ordinary({"NCCL has none between the ranks", 2}, {}, multicast_options());
  expect_ordinary({"NCCL is older", 1, 22803}, {}, multicast_options());
  MulticastWays half;
  half.dtype = DDP_F16;
  expect_ordinary({"F16 may overflow in the sum"}, half, multicast_options());
  MulticastWays lent;
  lent.own = false;
  expect_ordinary({"gradients and values are the program's"}, lent, multicast_options());
  MulticastWays frozen;
  frozen.frozen = 3;
  expect_ordinary({"a parameter is frozen"}, frozen, multicast_options());
}

/// A rank's device does not come to the kernel, as if its process were gone: the others' kernels end when the group breaks.
void a_kernel_does_not_wait_for_a_rank_that_is_gone(void**) {
  for (const bool before : {true, false}) {
    const FakeGpus gpus;
    std::atomic<bool> ended{false};
    run_gpu_groups_with(3, multicast_options(), [&](group::Group& group, int rank) {
      MulticastTrainee trainee(group, rank, {});
      trainee.train(0, 2);
      trainee.stream->synchronize();
      group.barrier();
      if (rank == 1) fake_gpu::pause_device(1);
      group.barrier();
      trainee.pass(2);  // well, for the hosts
      group.barrier();
      if (rank == 1) {
        group.health().abort(Error(DDP_ERROR_ABORTED, "rank 1 had enough"));
        wait_until([&] { return ended.load(); });
        fake_gpu::resume_device(1);
        return;
      }
      if (before) expect_error(DDP_ERROR_ABORTED, [&] { group.barrier(); });
      trainee.stream->synchronize();
      if (rank == 0) ended = true;
    });
    FakeGpus::expect_correct();
    FakeGpus::expect_nothing_left();
  }
}

void windows_go_with_the_memory_of_a_model(void**) {
  const FakeGpus gpus;
  run_gpu_groups_with(2, multicast_options(), [&](group::Group& group, int rank) {
    for (int turn = 0; turn < 3; ++turn) {
      {
        MulticastTrainee trainee(group, rank, {});
        trainee.train(0, 3);
        trainee.model->close();
      }
      group.barrier();
    }
  });
  expect_equal(fake_gpu::calls("nccl.window_register"), int64_t{12}, "two windows a model on each rank");
  expect_equal(fake_gpu::calls("nccl.window_deregister"), int64_t{12}, "all of them are given back");
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

/// NCCL would place the next windows differently.
void ranks_that_destroyed_different_models_get_no_windows(void**) {
  const FakeGpus gpus;
  run_gpu_groups_with(2, multicast_options(), [&](group::Group& group, int rank) {
    auto first = std::make_unique<MulticastTrainee>(group, rank, MulticastWays{});
    first->train(0, 2);
    first->stream->synchronize();
    group.barrier();
    if (rank == 0) first->model->close(), first.reset();
    group.barrier();
    const int64_t before = fused_calls();
    MulticastTrainee second(group, rank, {});
    second.train(0, 3);
    second.stream->synchronize();
    expect_equal(fused_calls(), before, "the ordinary way");
    group.barrier();
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

void a_team_that_cannot_be_made_leaves_the_group_whole(void**) {
  for (const char* const function : {"nccl.team_create", "device_multicast"}) {
    const MulticastBytes wanted = train_on_cpu(2, {});
    const FakeGpus gpus;
    fake_gpu::inject({function, 1, 1,
                      std::string(function) == "device_multicast" ? int32_t{DDP_GPU_OTHER} : int32_t{DDP_NCCL_FAILED}, 1});
    expect(train(2, {}, multicast_options()) == wanted, function);
    expect_equal(fused_calls(), int64_t{0}, function);
    FakeGpus::expect_correct(function);
    FakeGpus::expect_nothing_left();
  }
}

/// From the first pass on, in which all is made.
void expect_all_end(const std::function<void()>& make_trouble, const char* named, const char* what) {
  const FakeGpus gpus;
  run_gpu_groups_with(2, multicast_options(), [&](group::Group& group, int rank) {
    MulticastTrainee trainee(group, rank, {});
    group.barrier();
    if (rank == 1) make_trouble();
    group.barrier();
    std::string text;
    try {
      trainee.train(0, 3);
    } catch (const Error& error) {
      text = error.text();
    }
    expect(!text.empty(), "both ranks hear of it");
    if (rank == 0) expect_contains(text, named);
    trainee.stream->synchronize();
  });
  FakeGpus::expect_correct(what);
  FakeGpus::expect_nothing_left();
}

void a_rank_that_cannot_register_ends_the_group(void**) {
  for (const int nth : {1, 2})
    expect_all_end(
        [nth] {
          fake_gpu::inject({"nccl.window_register", nth, 1, DDP_NCCL_FAILED, 1});
        },
        "rank 1", "a window that cannot be registered");
}

void a_launch_that_fails_ends_the_group(void**) {
  expect_all_end(
      [] {
        fake_gpu::inject({"fused_adam", 2, 1, DDP_GPU_OTHER, 1});
      },
      "GPU 1", "a kernel that cannot be launched");
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_test(one_kernel_a_bucket_has_the_values_of_the_ordinary_way),
      ddp_test(a_sum_is_not_divided),
      ddp_test(own_slices_of_gradients_are_means),
      ddp_test(a_void_pass_takes_its_steps_back),
      ddp_test(what_cannot_goes_the_ordinary_way),
      ddp_test(a_kernel_does_not_wait_for_a_rank_that_is_gone),
      ddp_test(windows_go_with_the_memory_of_a_model),
      ddp_test(ranks_that_destroyed_different_models_get_no_windows),
      ddp_test(a_team_that_cannot_be_made_leaves_the_group_whole),
      ddp_test(a_rank_that_cannot_register_ends_the_group),
      ddp_test(a_launch_that_fails_ends_the_group),
  };
  return cmocka_run_group_tests_name("gpu_multicast", tests, nullptr, nullptr);
}
