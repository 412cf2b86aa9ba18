// SPDX-License-Identifier: Apache-2.0
// Messages and collectives of messages.h with tensors on GPUs: the order of streams, mixed places, and failures. Their
// numbers are tested by conformance/messages_test.cpp, on GPUs too.
#include "group/messages.hpp"

#include "gpu_host/on_gpu.hpp"
#include "group/channels.hpp"
#include "support/check.hpp"

using namespace ddp;

constexpr int64_t kLarge = 300'000;  // elements, of a message that waits for its receive

ddp_case(a_message_has_what_its_stream_held_and_the_stream_has_what_came) {
  for (const int64_t count : {int64_t{0}, int64_t{1}, kCount, kLarge}) {
    run_on_gpus(2, [&](group::Group& group, int rank) {
      OnGpu mine(rank, count), other(rank, count);
      for (int turn = 0; turn < 3; ++turn) {
        mine.write(numbers(rank + turn, count));
        const auto sends = [&] { group::send_message(group, mine.tensor(group), 1 - rank, 1, mine.stream.get()); };
        const auto receives = [&] {
          expect_equal(group::receive_message(group, other.tensor(group), 1 - rank, 1, other.stream.get()), 1 - rank,
                       "the sender");
        };
        rank == 0 ? sends() : receives();
        rank == 0 ? receives() : sends();
        expect(other.read() == numbers(1 - rank + turn, count), "what came");
      }
    });
  }
}

ddp_case(nothing_of_nccl_is_needed) {
  const FakeGpus gpus;
  fake_gpu::set_open_nccl_error("libnccl.so.2: no such file");
  run_gpu_groups(2, [](group::Group& group, int rank) {
    OnGpu mine(rank, 2), all(rank, 4);
    mine.write(numbers(rank, 2));
    group::all_gather_counts(group, mine.tensor(group), all.tensor(group), {2, 2}, mine.stream.get());
    expect(read_on(mine.stream, rank, all.array.data(), 4) == std::vector<float>{0, 1, 1, 2}, "gathered");
  });
}

/// The one has the tensor in host memory, the other on its GPU; and a call may have one of each.
ddp_ranks_case(run_on_gpus, places_may_differ_between_ranks_and_tensors, 2) {
  std::vector<float> in_host = numbers(rank), into_host(kCount), pair(2 * kCount);
  OnGpu mine(rank), all(rank, 2 * kCount);
  mine.write(numbers(rank));
  const Tensor here = of_host(in_host), there = mine.tensor(group);
  if (rank == 0) {
    group::send_message(group, here, 1, 1);
    group::receive_message(group, of_host(into_host), 1, 2);
    expect(into_host == numbers(1), "from a GPU to the host");
  } else {
    group::receive_message(group, flat_part(all.tensor(group), 0, kCount), 0, 1, all.stream.get());
    expect(read_on(all.stream, rank, all.array.data(), kCount) == numbers(0), "from the host to a GPU");
    group::send_message(group, there, 0, 2, mine.stream.get());
  }
  std::vector<float> wanted = numbers(0);
  const std::vector<float> second = numbers(1);
  wanted.insert(wanted.end(), second.begin(), second.end());
  const Tensor whole_there = all.tensor(group), whole_here = of_host(pair);
  group::gather(group, rank == 0 ? here : there, rank == 0 ? &whole_there : nullptr, 0,
                rank == 0 ? all.stream.get() : mine.stream.get());
  if (rank == 0) expect(all.read() == wanted, "gathered on a GPU, one of it from the host");
  group::all_gather_counts(group, rank == 0 ? there : here, rank == 0 ? whole_here : whole_there, {kCount, kCount},
                           rank == 0 ? mine.stream.get() : all.stream.get());
  expect((rank == 0 ? pair : all.read()) == wanted, "gathered from each to the other");
}

/// The host waits for the message, and not for earlier work on the stream.
ddp_ranks_case(run_on_gpus, a_receive_does_not_wait_for_its_stream, 2) {
  OnGpu mine(rank, kLarge);
  if (rank == 0) {
    mine.write(numbers(7, kLarge));
    group::send_message(group, mine.tensor(group), 1, 1, mine.stream.get());
  } else {
    const Paused paused(mine);
    mine.write(numbers(1, kLarge));  // comes before what is received
    group::receive_message(group, mine.tensor(group), 0, 1, mine.stream.get());
    expect(fake_gpu::pending(mine.stream.get()) > 0, "the stream has not moved");
    paused.resume();
    expect(mine.read() == numbers(7, kLarge), "what came is the last");
  }
  group.barrier();
}

/// A later kernel of the program changes the tensor; the block of the message is the library's.
ddp_ranks_case(run_on_gpus, what_follows_on_the_stream_may_change_the_tensor, 2) {
  OnGpu mine(rank), taken(rank);
  GpuArray zeros(rank, kCount * 4);
  zeros.poke(std::vector<float>(kCount, 0));
  mine.write(numbers(rank));
  group::RequestPtr sent;
  group::send_message(group, mine.tensor(group), 1 - rank, 1, mine.stream.get(), &sent);
  write_on(mine.stream.get(), zeros, mine.array.data());  // at once
  group::receive_message(group, taken.tensor(group), 1 - rank, 1, taken.stream.get());
  expect(taken.read() == numbers(1 - rank), "the values of before");
  expect(sent->wait(group::Request::kForEver), "sent");
  expect(mine.read() == std::vector<float>(kCount, 0), "the tensor has changed");
}

ddp_ranks_case(run_on_gpus, a_stream_that_is_captured_is_refused_and_the_group_stays, 2) {
  OnGpu mine(rank, 2), all(rank, 4);
  const Tensor one = mine.tensor(group), two = all.tensor(group);
  void* const stream = mine.stream.get();
  expect(fake_gpu::begin_capture(stream, fake_gpu::CaptureMode::kThreadLocal), "the capture begins");
  group::RequestPtr request;
  const auto refused = [&](const char* name, const std::function<void()>& call) {
    expect_error(
        DDP_ERROR_INVALID_STATE, call,
        {std::string(name) + ": the stream is being captured into a CUDA graph", "its bytes go through host memory"});
  };
  refused("ddp_group_send", [&] { group::send_message(group, one, 1 - rank, 1, stream); });
  refused("ddp_group_receive", [&] { group::receive_message(group, one, 1 - rank, 1, stream); });
  refused("ddp_group_gather", [&] { group::gather(group, one, rank == 0 ? &two : nullptr, 0, stream); });
  refused("ddp_group_scatter", [&] { group::scatter(group, rank == 0 ? &two : nullptr, one, 0, stream); });
  refused("ddp_group_all_to_all", [&] { group::all_to_all(group, two, two, {}, stream); });
  refused("ddp_group_all_gather_counts", [&] { group::all_gather_counts(group, one, two, {2, 2}, stream); });
  refused("ddp_group_post_send", [&] { group::send_message(group, one, 1 - rank, 1, stream, &request); });
  refused("ddp_group_post_receive", [&] { group::receive_message(group, one, 1 - rank, 1, stream, &request); });
  std::string why;
  expect(fake_gpu::end_capture(stream, &why) != nullptr, "the capture is not spoiled: " + why);
  mine.write(numbers(rank, 2));
  group::all_gather_counts(group, one, two, {2, 2}, stream);
  group.barrier();
  mine.stream.synchronize();
}

ddp_case(a_stream_of_another_gpu_is_refused) {
  const FakeGpus gpus;
  run_gpu_groups(2, [](group::Group& group, int rank) {
    OnGpu mine(rank);
    auto other = std::make_unique<GpuStream>(1 - rank);
    expect(fake_gpu::table().set_device(rank) == 0, "its own GPU again");
    for (const bool sends : {true, false})
      expect_error(DDP_ERROR_INVALID_ARGUMENT,
                   [&] {
                     sends ? group::send_message(group, mine.tensor(group), 1 - rank, 1, other->get())
                           : static_cast<void>(group::receive_message(group, mine.tensor(group), 1 - rank, 1, other->get()));
                   },
                   {"streams and tensors must belong to this device"});
    group.barrier();
    expect(fake_gpu::table().set_device(1 - rank) == 0, "where the stream is");
    other.reset();
    expect(fake_gpu::table().set_device(rank) == 0, "its own GPU again");
  });
  for (const std::string& text : fake_gpu::violations()) expect_contains(text, "is recorded on stream");
  fake_gpu::clear_violations();
  FakeGpus::expect_nothing_left();
}

ddp_ranks_case(run_on_gpus, a_group_of_one_gets_what_it_gives, 1) {
  OnGpu mine(rank), taken(rank);
  const Tensor given = mine.tensor(group), got = taken.tensor(group);
  void* const stream = taken.stream.get();
  const auto check = [&](const char* what, int about) {
    expect(taken.read() == numbers(about), what);
    fake_gpu::poke(taken.array.data(), numbers(0).data(), kCount * 4);
  };
  int about = 0;
  const auto write = [&] {
    mine.write(numbers(++about));
    mine.stream.synchronize();
  };
  write(), group::gather(group, given, &got, 0, stream), check("gather", about);
  write(), group::scatter(group, &given, got, 0, stream), check("scatter", about);
  write(), group::all_to_all(group, given, got, {}, stream), check("all_to_all", about);
  write(), group::all_gather_counts(group, given, got, {kCount}, stream), check("all_gather_counts", about);
}

/// In place: the own part of the whole.
ddp_ranks_case(run_on_gpus, a_part_may_be_its_own_place, 2) {
  OnGpu all(rank, 2 * kCount);
  all.write(numbers(rank, 2 * kCount));
  const Tensor whole = all.tensor(group), own = flat_part(whole, rank * kCount, kCount);
  group::all_gather_counts(group, own, whole, {kCount, kCount}, all.stream.get());
  std::vector<float> wanted = numbers(0, kCount), second = numbers(1, 2 * kCount);
  wanted.insert(wanted.end(), second.begin() + kCount, second.end());
  expect(all.read() == wanted, "gathered in place");
  group::scatter(group, rank == 1 ? &whole : nullptr, own, 1, all.stream.get());
  expect(all.read() == wanted, "scattered in place");
}

ddp_case(memory_that_is_refused_breaks_the_group_with_a_name) {
  run_on_gpus(2, [](group::Group& group, int rank) {
    OnGpu mine(rank);
    group.barrier();
    if (rank == 0) {
      fake_gpu::inject({"host_alloc", 1, 1, DDP_GPU_OUT_OF_MEMORY, 0});
      expect_error(DDP_ERROR_OUT_OF_MEMORY, [&] { group::send_message(group, mine.tensor(group), 1, 1, mine.stream.get()); },
                   {"page-locked memory"});
    } else {
      expect_error(DDP_ERROR_PEER_FAILED,
                   [&] { group::receive_message(group, mine.tensor(group), 0, 1, mine.stream.get()); },
                   {"could not go on in ddp_group_send: there are no 65536 bytes of page-locked memory"});
    }
    fake_gpu::table().synchronize();
  });
}

ddp_case(a_gpu_that_is_lost_breaks_the_group_with_a_name) {
  run_on_gpus(2, [](group::Group& group, int rank) {
    OnGpu mine(rank);
    std::vector<float> host(kCount);
    group.barrier();
    if (rank == 0) fake_gpu::inject({"copy", 1, 1, DDP_GPU_LOST, 0});
    expect_error(DDP_ERROR_PEER_FAILED,
                 [&] {
                   rank == 0 ? group::send_message(group, mine.tensor(group), 1, 1, mine.stream.get())
                             : static_cast<void>(group::receive_message(group, of_host(host), 0, 1));
                 },
                 {"rank 0", "lost its GPU 0"});
    fake_gpu::table().synchronize();
  });
}

/// A rank goes while another one's tensor is still copied: the error comes at once, the copy ends later, in memory that is
/// there.
ddp_case(a_break_ends_a_wait_for_the_stream) {
  const FakeGpus gpus;
  std::atomic<void*> waits{nullptr};
  std::atomic<bool> ended{false};
  run_gpu_groups(2, [&](group::Group& group, int rank) {
    OnGpu mine(rank);
    if (rank == 0) {
      const Paused paused(mine);
      mine.write(numbers(0));
      waits = mine.stream.get();
      const std::string text =
          expect_error(DDP_ERROR_ABORTED, [&] { group::send_message(group, mine.tensor(group), 1, 1, mine.stream.get()); });
      expect(fake_gpu::pending(mine.stream.get()) > 0, "the copy is still to come");
      ended = true;
      expect_contains(text, "enough");
    } else {
      wait_until([&] { return waits.load() != nullptr && fake_gpu::calls("host_alloc", 0) > 0; });
      group.health().abort(Error(DDP_ERROR_ABORTED, "enough"));
      for (int at = 0; at < 1000 && !ended; ++at) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (!ended) fake_gpu::resume(waits);
    }
  });
  FakeGpus::expect_clean();
}

/// One after the other uses the same blocks: nothing is allocated in a loop.
ddp_ranks_case(run_on_gpus, a_loop_allocates_in_its_first_turn, 2) {
  OnGpu mine(rank), taken(rank);
  int64_t made = 0;
  for (int turn = 0; turn < 20; ++turn) {
    mine.write(numbers(rank + turn));
    group::all_to_all(group, flat_part(mine.tensor(group), 0, kCount), taken.tensor(group), {}, mine.stream.get());
    mine.stream.synchronize();
    if (turn == 0) made = fake_gpu::calls("host_alloc", rank);
  }
  expect_equal(fake_gpu::calls("host_alloc", rank), made, "blocks");
  group.barrier();
}
