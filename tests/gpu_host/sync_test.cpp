// SPDX-License-Identifier: Apache-2.0
// Making ranks equal, comparing and averaging them, when tensors are on GPUs, in host memory, or some here and some there.
#include "core/hash.hpp"
#include "model/average.hpp"
#include "model/replicas.hpp"
#include "model/sync_buffers.hpp"
#include "model/uneven.hpp"
#include "optim/adam.hpp"
#include "support/check.hpp"
#include "support/mixed_model.hpp"
#include "support/rule_options.hpp"

ddp_case(commit_gives_the_values_of_rank_0) {
  for (const int size : {1, 2, 3, 4})
    for (const Place place : {Place::kGpu, Place::kMixed}) {
      run_on(Path::kGpu, size, [&](group::Group& group, int rank) {
        MixedModel world(group, rank, place);
        world.fill(rank, 1);
        world.model->commit(world.compute.get());
        world.compute.synchronize();
        world.expect_filled(0, 1, "the values of rank 0");
      });
    }
}

ddp_case(buffers_come_from_the_root_whatever_it_is) {
  run_on(Path::kGpu, 3, [&](group::Group& group, int rank) {
    MixedModel world(group, rank, Place::kMixed);
    world.model->commit(world.compute.get());
    const GpuStream other(rank);
    for (int round = 0; round < 6; ++round) {
      const GpuStream& stream = round % 2 == 0 ? world.compute : other;
      world.fill(rank, round);
      sync_buffers(*world.model, round % 3, stream.get());
      if (round != 2)
        stream.synchronize();  // otherwise what comes next waits on the device
      else
        world.device().synchronize();
      world.expect_buffers_filled(round % 3, round);
      group.barrier();
    }
  });
}

ddp_ranks_case(run_on_gpus, buffers_on_a_gpu_are_sent_without_waiting_for_it, 2) {
  MixedModel world(group, rank, Place::kGpu);
  world.fill(rank, 1);
  world.model->commit(world.compute.get());
  sync_buffers(*world.model, 1, world.compute.get());
  world.compute.synchronize();
  expect_no_wait(group, [&] {
    for (int round = 0; round < 3; ++round) sync_buffers(*world.model, 1, world.compute.get());
  });
  world.compute.synchronize();
  group.barrier();
}

ddp_ranks_case(run_on_gpus, a_difference_is_named_wherever_it_lies, 3) {
  MixedModel world(group, rank, Place::kMixed);
  world.fill(0, 1);
  world.model->commit(world.compute.get());
  world.model->replicas().check(world.compute.get());
  for (const std::string& name : world.names()) {
    if (rank == 1) world.change(name);
    expect_error(DDP_ERROR_MISMATCH, [&] { world.model->replicas().check(world.compute.get()); },
                 {"\"" + name + "\" is different on rank 1"});
    world.compute.synchronize();
    world.fill(0, 1);
    world.model->replicas().check(world.compute.get());
  }
}

ddp_case(a_comparison_follows_the_stream_and_waits_once) {
  const FakeGpus gpus(3);
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    MixedModel world(group, rank, Place::kGpu);
    world.model->commit(world.compute.get());
    GpuArray fresh(rank, world.bytes("large"));
    fresh.poke(std::vector<float>(static_cast<size_t>(fresh.bytes()) / 4, static_cast<float>(rank)));
    write_on(world.compute.get(), fresh, world.tensor("large").data);
    begin_log(group);
    expect_error(DDP_ERROR_MISMATCH, [&] { world.model->replicas().check(world.compute.get()); }, {"\"large\""});
    group.barrier();
    if (rank == 0) expect_equal(fake_gpu::host_waits(), int64_t{4}, "a copy and a stream on each rank");
    group.barrier();
  });
  FakeGpus::expect_correct();
}

ddp_case(replicas_that_drift_are_made_equal) {
  for (const int size : {2, 3}) {
    run_on(Path::kGpu, size, [&](group::Group& group, int rank) {
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
        expect_error(DDP_ERROR_MISMATCH, [&] { world.pass(); }, {"parameter \"small1\" differs between rank 0 and rank 1"});
      } else {
        world.pass();
        world.compute.synchronize();
        world.expect_filled(0, 1, "what most ranks held");
        ddp_model_stats stats{};
        world.model->replicas().fill(stats);
        expect(stats.checks == 1 && stats.repairs == 1, "one check, one repair");
      }
    });
  }
}

ddp_ranks_case(run_on_gpus, the_hash_is_that_of_the_same_values_in_host_memory, 1) {
  std::vector<uint64_t> hashes;
  for (const Place place : {Place::kHost, Place::kGpu, Place::kMixed}) {
    MixedModel world(group, rank, place);
    world.fill(3, 4);
    hashes.push_back(world.model->replicas().hash());
    world.change("large");
    expect(world.model->replicas().hash() != hashes.back(), "one changed element changes it");
  }
  expect(hashes[0] == hashes[1] && hashes[0] == hashes[2], "the same number");
}

ddp_case(a_rank_without_data_ends_with_the_newest_state) {
  for (const Place place : {Place::kHost, Place::kGpu, Place::kMixed}) {
    run_on(Path::kGpu, 3, [&](group::Group& group, int rank) {
      ddp_model_options options = mixed_model_options();
      options.uneven_inputs = 1;
      MixedModel world(group, rank, place, options);
      world.model->commit(world.compute.get());
      const int32_t last = group.size() - 1;
      for (int step = 0; step < 2 + rank; ++step) {
        world.compute.synchronize();
        world.fill(rank, step);
        sync_buffers(*world.model, last, world.compute.get());
        world.pass();
        world.compute.synchronize();
        world.expect_buffers_filled(last, step);
        world.fill(7, step);  // what an optimizer would make of the same gradients
      }
      join(*world.model, world.compute.get());
      world.compute.synchronize();
      world.expect_filled(7, 1 + last, "what the last rank had in the end");
    });
  }
}

ddp_case(moments_on_a_gpu_are_repaired_with_their_parameters) {
  run_on(Path::kGpu, 3, [&](group::Group& group, int rank) {
    ddp_model_options options = mixed_model_options();
    options.check_every = 2;
    options.drift = DDP_DRIFT_RESEND;
    MixedModel world(group, rank, Place::kMixed, options);
    AdamOptions rule;
    rule.rate = 0.25;
    const auto adam = std::make_shared<optim::Adam>(world.model, rule, rule);
    world.model->replicas().keep_equal(adam);
    world.model->commit(world.compute.get());
    const auto step = [&] {
      world.pass();
      adam->step(world.compute.get());
      world.compute.synchronize();
    };
    step();
    const std::vector<model::StateTensor> moments = adam->state_tensors();
    const auto moments_there = [&] {
      std::string all;
      for (const model::StateTensor& each : moments) {
        std::string bytes(static_cast<size_t>(each.tensor.bytes()), '\0');
        if (each.tensor.is_on_gpu())
          expect(fake_gpu::peek(bytes.data(), each.tensor.data, each.tensor.bytes()), "peeked");
        else
          std::memcpy(bytes.data(), each.tensor.data, bytes.size());
        all += bytes;
      }
      return all;
    };
    if (rank == 2) {
      world.change("large");
      for (const model::StateTensor& each : moments) {
        const float wrong = 3;
        if (each.tensor.is_on_gpu() && each.tensor.count > 0) expect(fake_gpu::poke(each.tensor.data, &wrong, 4), "poked");
      }
    }
    world.pass();  // finds and repairs
    world.compute.synchronize();
    const std::string mine = moments_there();
    const uint64_t hash = content_hash(mine.data(), mine.size());
    for (const std::string& each : group.gather("moments", std::to_string(hash)))
      expect(each == std::to_string(hash), "the same moments on all ranks");
    world.model->replicas().check(world.compute.get());
  });
}

ddp_ranks_case(run_on_gpus, a_graph_cannot_hold_what_shares_memory, 1) {
  MixedModel world(group, rank, Place::kGpu);
  world.model->commit(world.compute.get());
  world.compute.synchronize();
  expect(fake_gpu::begin_capture(world.compute.get()), "capturing");
  void* const stream = world.compute.get();
  for (const std::string& text : {expect_error(DDP_ERROR_INVALID_STATE, [&] { sync_buffers(*world.model, 0, stream); }),
                                  expect_error(DDP_ERROR_INVALID_STATE, [&] { average_parameters(*world.model, stream); }),
                                  expect_error(DDP_ERROR_INVALID_STATE, [&] { world.model->replicas().check(stream); })})
    expect_contains(text, "CUDA graph");
  (void)fake_gpu::end_capture(world.compute.get());
}

ddp_case(averages_are_those_of_all_ranks) {
  for (const int size : {1, 2, 4}) {
    run_on(Path::kGpu, size, [&](group::Group& group, int rank) {
      MixedModel world(group, rank, Place::kMixed);
      world.model->commit(world.compute.get());
      world.compute.synchronize();
      world.fill(rank, 2);
      average_parameters(*world.model, world.compute.get());
      world.compute.synchronize();
      world.expect_averaged(size, 2);
    });
  }
}

ddp_ranks_case(run_on_gpus, ranks_that_differ_in_where_a_tensor_lies_do_not_fit, 2) {
  MixedModel world(group, rank, rank == 0 ? Place::kGpu : Place::kHost);
  expect_error(DDP_ERROR_MISMATCH, [&] { world.model->commit(world.compute.get()); }, {"on a GPU on rank 0"});
  group.barrier();
}

ddp_ranks_case(run_on_gpus, hooks_that_need_host_memory_are_refused, 2) {
  for (const parts::Hook::Kind kind : {parts::Hook::Kind::kCallback, parts::Hook::Kind::kPulled}) {
    MixedModel world(group, rank, Place::kMixed);
    parts::Hook hook;
    hook.kind = kind;
    hook.name = "powersgd";
    world.model->set_hook(hook);
    expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { world.model->commit(world.compute.get()); },
                 {"\"powersgd\"", "the model option wire"});
  }
  group.barrier();
}
