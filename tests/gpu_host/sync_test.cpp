// Making ranks equal, comparing and averaging them, when tensors lie on GPUs, in host memory, or some here and some there.
#include <cmath>

#include "comm/nccl/side.hpp"
#include "device/gpu/device.hpp"
#include "reduce/model.hpp"
#include "support/mixed_model.hpp"
#include "sync/spread.hpp"
#include "update/optimizer.hpp"

namespace ddp::test {
namespace {

void commit_gives_the_values_of_rank_0(void**) {
  for (const int size : {1, 2, 3, 4})
    for (const Place place : {Place::kGpu, Place::kMixed}) {
      const FakeGpus gpus(static_cast<uint64_t>(size));
      run_gpu_groups(size, [&](Group& group, int rank) {
        MixedModel world(group, rank, place);
        world.fill(rank, 1);
        world.model->commit(world.compute.get());
        world.compute.synchronize();
        world.expect_filled(0, 1, "the values of rank 0");
        group.barrier();
      });
      FakeGpus::expect_correct();
      FakeGpus::expect_nothing_left();
    }
}

void buffers_come_from_the_root_whatever_it_is(void**) {
  const FakeGpus gpus(11);
  run_gpu_groups(3, [&](Group& group, int rank) {
    MixedModel world(group, rank, Place::kMixed);
    world.model->commit(world.compute.get());
    const GpuStream other(rank);
    for (int round = 0; round < 6; ++round) {
      const GpuStream& stream = round % 2 == 0 ? world.compute : other;
      world.fill(rank, round);
      world.model->sync_buffers(round % 3, stream.get());
      if (round != 2) stream.synchronize();  // otherwise what comes next waits on the device
      else world.device().synchronize();
      world.expect_buffers_filled(round % 3, round);
      group.barrier();
    }
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

void buffers_on_a_gpu_are_sent_without_waiting_for_it(void**) {
  const FakeGpus gpus;
  run_gpu_groups(2, [&](Group& group, int rank) {
    MixedModel world(group, rank, Place::kGpu);
    world.fill(rank, 1);
    world.model->commit(world.compute.get());
    world.model->sync_buffers(1, world.compute.get());
    world.compute.synchronize();
    group.barrier();
    if (rank == 0) fake_gpu::clear_log();
    group.barrier();
    fake_gpu::pause_device(rank);
    for (int round = 0; round < 3; ++round) world.model->sync_buffers(1, world.compute.get());
    expect(fake_gpu::pending_on_device(rank) > 0, "nothing has run yet");
    group.barrier();
    expect_equal(fake_gpu::host_waits(), int64_t{0}, "waits of the host");
    expect_equal(fake_gpu::allocations(), int64_t{0}, "allocations");
    group.barrier();
    fake_gpu::resume_device(rank);
    world.compute.synchronize();
    group.barrier();
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

void a_difference_is_named_wherever_it_lies(void**) {
  const FakeGpus gpus;
  run_gpu_groups(3, [&](Group& group, int rank) {
    MixedModel world(group, rank, Place::kMixed);
    world.fill(0, 1);
    world.model->commit(world.compute.get());
    world.model->check_replicas(world.compute.get());
    for (const std::string& name : world.names()) {
      if (rank == 1) world.change(name);
      const std::string text = expect_error(DDP_ERROR_MISMATCH, [&] { world.model->check_replicas(world.compute.get()); });
      expect_contains(text, "\"" + name + "\" is different on rank 1");
      world.compute.synchronize();
      world.fill(0, 1);
      world.model->check_replicas(world.compute.get());
    }
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

void a_comparison_follows_the_stream_and_waits_once(void**) {
  const FakeGpus gpus(3);
  run_gpu_groups(2, [&](Group& group, int rank) {
    MixedModel world(group, rank, Place::kGpu);
    world.model->commit(world.compute.get());
    GpuArray fresh(rank, world.bytes("large"));
    fresh.poke(std::vector<float>(static_cast<size_t>(fresh.bytes()) / 4, static_cast<float>(rank)));
    write_on(world.compute.get(), fresh, world.tensor("large").data);
    group.barrier();
    if (rank == 0) fake_gpu::clear_log();
    group.barrier();
    expect_contains(expect_error(DDP_ERROR_MISMATCH, [&] { world.model->check_replicas(world.compute.get()); }), "\"large\"");
    group.barrier();
    if (rank == 0) expect_equal(fake_gpu::host_waits(), int64_t{4}, "a copy and a stream on each rank");
    group.barrier();
  });
  FakeGpus::expect_correct();
}

void replicas_that_drift_are_made_equal(void**) {
  for (const int size : {2, 3}) {
    const FakeGpus gpus(7);
    run_gpu_groups(size, [&](Group& group, int rank) {
      ddp_model_options options = mixed_model_options();
      options.check_every = 2;
      options.drift = size == 2 ? DDP_DRIFT_REPORT : DDP_DRIFT_RESEND;
      MixedModel world(group, rank, Place::kMixed, options);
      world.fill(0, 1);
      world.model->commit(world.compute.get());
      world.compute.synchronize();
      if (rank == 1) world.change("small1");
      if (rank == 1) world.change("count");
      world.pass();
      if (size == 2) {
        expect_contains(expect_error(DDP_ERROR_MISMATCH, [&] { world.pass(); }), "parameter \"small1\" has no content that most ranks hold");
      } else {
        world.pass();
        world.compute.synchronize();
        world.expect_filled(0, 1, "what most ranks held");
        ddp_model_stats stats{};
        world.model->fill_stats(stats);
        expect(stats.checks == 1 && stats.repairs == 1, "one check, one repair");
      }
      group.barrier();
    });
    FakeGpus::expect_correct();
    FakeGpus::expect_nothing_left();
  }
}

void the_hash_is_that_of_the_same_values_in_host_memory(void**) {
  const FakeGpus gpus;
  run_gpu_groups(1, [&](Group& group, int rank) {
    std::vector<uint64_t> hashes;
    for (const Place place : {Place::kHost, Place::kGpu, Place::kMixed}) {
      MixedModel world(group, rank, place);
      world.fill(3, 4);
      hashes.push_back(world.model->content_hash());
      world.change("large");
      expect(world.model->content_hash() != hashes.back(), "one changed element changes it");
    }
    expect(hashes[0] == hashes[1] && hashes[0] == hashes[2], "the same number");
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

void averages_are_those_of_all_ranks(void**) {
  for (const int size : {1, 2, 4}) {
    const FakeGpus gpus(static_cast<uint64_t>(size) + 20);
    run_gpu_groups(size, [&](Group& group, int rank) {
      MixedModel world(group, rank, Place::kMixed);
      world.model->commit(world.compute.get());
      world.compute.synchronize();
      world.fill(rank, 2);
      world.model->average_parameters(world.compute.get());
      world.compute.synchronize();
      world.expect_averaged(size, 2);
      group.barrier();
    });
    FakeGpus::expect_correct();
    FakeGpus::expect_nothing_left();
  }
}

void ranks_that_differ_in_where_a_tensor_lies_do_not_fit(void**) {
  const FakeGpus gpus;
  run_gpu_groups(2, [&](Group& group, int rank) {
    MixedModel world(group, rank, rank == 0 ? Place::kGpu : Place::kHost);
    const std::string text = expect_error(DDP_ERROR_MISMATCH, [&] { world.model->commit(world.compute.get()); });
    expect_contains(text, "on a GPU on rank 0");
    group.barrier();
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

void hooks_that_need_host_memory_are_refused(void**) {
  const FakeGpus gpus;
  run_gpu_groups(2, [&](Group& group, int rank) {
    for (const Hook::Kind kind : {Hook::Kind::kCallback, Hook::Kind::kPulled}) {
      MixedModel world(group, rank, Place::kMixed);
      Hook hook;
      hook.kind = kind;
      hook.name = "powersgd";
      world.model->set_hook(hook);
      const std::string text = expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { world.model->commit(world.compute.get()); });
      expect_contains(text, "\"powersgd\"");
      expect_contains(text, "ddp_hook_fp16");
    }
    group.barrier();
  });
  FakeGpus::expect_correct();
}

void a_rank_whose_gpu_fails_inside_ends_the_group_for_all(void**) {
  for (const char* function : {"copy", "hash"}) {
    const FakeGpus gpus;
    run_gpu_groups(3, [&](Group& group, int rank) {
      MixedModel world(group, rank, Place::kGpu);
      world.model->commit(world.compute.get());
      world.compute.synchronize();
      group.barrier();
      fake_gpu::Fault fault;
      fault.function = function;
      fault.device = 1;
      if (rank == 1) fake_gpu::inject(fault);
      group.barrier();
      try {
        if (std::string(function) == "hash") world.model->check_replicas(world.compute.get());
        else world.model->sync_buffers(1, world.compute.get());
        throw std::runtime_error("it succeeded");
      } catch (const Error& error) {
        expect_contains(error.text(), "GPU 1");
        expect(rank == 1 || error.status() == DDP_ERROR_PEER_FAILED, "a peer failed");
      }
      (void)expect_error(DDP_ERROR_PEER_FAILED, [&] { group.check_usable(); });
    });
    fake_gpu::clear_faults();
    FakeGpus::expect_nothing_left();
  }
}

void an_average_that_breaks_off_changes_no_parameter(void**) {
  const FakeGpus gpus;
  run_gpu_groups(2, [&](Group& group, int rank) {
    MixedModel world(group, rank, Place::kGpu);
    world.model->commit(world.compute.get());
    world.compute.synchronize();
    world.fill(rank, 3);
    group.barrier();
    fake_gpu::pause(group.gpu_side().stream());
    world.model->average_parameters(world.compute.get());
    if (rank == 0) group.abort(Error(DDP_ERROR_ABORTED, "the test has had enough"));
    wait_until([&] {
      try {
        group.check_usable();
        return false;
      } catch (const Error&) {
        return true;
      }
    });
    fake_gpu::resume(group.gpu_side().stream());
    world.compute.synchronize();
    world.expect_filled(rank, 3, "as before");
  });
  FakeGpus::expect_nothing_left();
}

void a_failure_behind_the_announcement_reaches_the_others(void**) {
  const FakeGpus gpus;
  run_gpu_groups(2, [&](Group& group, int rank) {
    MixedModel world(group, rank, Place::kGpu);
    world.model->commit(world.compute.get());
    world.compute.synchronize();
    group.barrier();
    fake_gpu::Fault fault;
    fault.function = "event_record";
    fault.device = 1;
    if (rank == 1) fake_gpu::inject(fault);
    group.barrier();
    try {
      group.broadcast(world.tensor("large"), 0, world.compute.get());
      expect(rank == 0, "the failing rank says so");
    } catch (const Error& error) {
      expect_contains(error.text(), "GPU 1");
    }
    std::string text;
    wait_until([&] {
      try {
        group.check_usable();
      } catch (const Error& error) {
        text = error.text();
      }
      return !text.empty();
    });
    expect_contains(text, "rank 1");
  });
  fake_gpu::clear_faults();
  FakeGpus::expect_nothing_left();
}

}  // namespace
}  // namespace ddp::test

using namespace ddp::test;

int main() {
  const CMUnitTest tests[] = {
      ddp_test(commit_gives_the_values_of_rank_0),
      ddp_test(buffers_come_from_the_root_whatever_it_is),
      ddp_test(buffers_on_a_gpu_are_sent_without_waiting_for_it),
      ddp_test(a_difference_is_named_wherever_it_lies),
      ddp_test(a_comparison_follows_the_stream_and_waits_once),
      ddp_test(replicas_that_drift_are_made_equal),
      ddp_test(the_hash_is_that_of_the_same_values_in_host_memory),
      ddp_test(averages_are_those_of_all_ranks),
      ddp_test(ranks_that_differ_in_where_a_tensor_lies_do_not_fit),
      ddp_test(hooks_that_need_host_memory_are_refused),
      ddp_test(a_rank_whose_gpu_fails_inside_ends_the_group_for_all),
      ddp_test(an_average_that_breaks_off_changes_no_parameter),
      ddp_test(a_failure_behind_the_announcement_reaches_the_others),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
