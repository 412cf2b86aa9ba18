// SPDX-License-Identifier: Apache-2.0
// Posted messages and collectives of messages.h with tensors on GPUs: the order on streams, the order of messages, requests
// that are given up, and groups that break.
#include "group/requests.hpp"

#include "ddp/messages.h"
#include "gpu_host/on_gpu.hpp"
#include "group/channels.hpp"
#include "group/messages.hpp"
#include "support/check.hpp"

using namespace ddp;

using group::Request;
using group::RequestPtr;

bool wait(const RequestPtr& request) { return request->wait(Request::kForEver); }

void send(group::Group& group, const OnGpu& of, int64_t tag, RequestPtr* posting) {
  group::send_message(group, of.tensor(group), 1 - group.rank(), tag, of.stream.get(), posting);
}
void receive(group::Group& group, const OnGpu& of, int64_t tag, RequestPtr* posting) {
  group::receive_message(group, of.tensor(group), 1 - group.rank(), tag, of.stream.get(), posting);
}

/// Tests, waits for one, or for the first of several.
const std::function<void(const RequestPtr&)> kLearns[] = {
    [](const RequestPtr& request) { wait_until([&] { return request->test(); }); },
    [](const RequestPtr& request) { expect(wait(request), "it has ended"); },
    [](const RequestPtr& request) {
      int32_t found = -1;
      expect_equal(group::wait_any({request}, Request::kForEver, &found), 0, "the only one");
    }};

ddp_case(a_stream_has_what_came_when_the_program_learns_of_the_end) {
  for (const auto& learn : kLearns)
    run_on_gpus(2, [&](group::Group& group, int rank) {
      for (const int64_t count : {int64_t{0}, int64_t{3}, kCount, int64_t{300'000}}) {
        OnGpu mine(rank, count), taken(rank, count);
        RequestPtr sent, received;
        receive(group, taken, 1, &received);
        mine.write(numbers(rank, count));
        send(group, mine, 1, &sent);
        learn(received);
        expect_equal(received->source(), 1 - rank, "the sender");
        expect(taken.read() == numbers(1 - rank, count), "what came");
        learn(sent);
        mine.stream.synchronize();
      }
      group.barrier();
    });
}

/// The stream of the sender is paused.
ddp_ranks_case(run_on_gpus, a_send_that_waits_for_its_stream_keeps_its_place_among_those_with_its_tag, 2) {
  if (rank == 1) {
    std::vector<float> first(kCount), second(1), third(1), other(1);
    group::receive_message(group, of_host(other), 0, 2);
    expect_equal(other[0], 4.0F, "another tag does not wait");
    group::send_message(group, of_host(other), 0, 3);
    group::receive_message(group, of_host(first), 0, 1);
    group::receive_message(group, of_host(second), 0, 1);
    group::receive_message(group, of_host(third), 0, 1);
    expect(first == numbers(0), "the first");
    expect_equal(second[0], 2.0F, "the second");
    expect_equal(third[0], 3.0F, "the third");
  } else {
    OnGpu mine(rank);
    std::vector<float> two{2}, three{3}, four{4}, answer(1);
    RequestPtr first, second;
    const Paused paused(mine);
    mine.write(numbers(0));
    send(group, mine, 1, &first);  // at once
    group::send_message(group, of_host(two), 1, 1, nullptr, &second);
    group::send_message(group, of_host(four), 1, 2);
    group::receive_message(group, of_host(answer), 1, 3);
    expect(!first->test() && !second->test() && !first->wait(20), "the stream stands still");
    std::thread resumes([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      paused.resume();
    });
    group::send_message(group, of_host(three), 1, 1);  // waits for its turn
    resumes.join();
    expect(wait(first) && wait(second), "sent");
    mine.stream.synchronize();
  }
  group.barrier();
}

/// A thread of the library begins it.
ddp_ranks_case(run_on_gpus, a_send_begins_although_no_thread_waits, 2) {
  OnGpu mine(rank, 300'000), taken(rank, 300'000);
  RequestPtr sent, received;
  const Paused paused(mine);
  mine.write(numbers(rank, 300'000));
  send(group, mine, 1, &sent);
  receive(group, taken, 1, &received);
  paused.resume();
  wait_until([&] { return sent->ended() && received->ended(); });
  expect(wait(received), "it has ended");
  expect(taken.read() == numbers(1 - rank, 300'000), "what came");
  expect(wait(sent), "sent");
  mine.stream.synchronize();
  group.barrier();
}

/// Every collective, posted in a row on streams that are paused.
ddp_ranks_case(run_on_gpus, posted_collectives_wait_for_their_streams_and_not_the_program, 2) {
  RequestPtr first;
  group.barrier(&first);
  expect(wait(first), "the channel is open");
  OnGpu mine(rank, 2), whole(rank, 4), part(rank, 1), swapped(rank, 2), all(rank, 4);
  const Paused paused(mine);
  mine.write({static_cast<float>(rank), static_cast<float>(rank + 10)});
  const Tensor two = mine.tensor(group), four = whole.tensor(group), one = part.tensor(group);
  void* const stream = mine.stream.get();
  std::vector<RequestPtr> requests(4);
  group::gather(group, two, rank == 0 ? &four : nullptr, 0, stream, &requests[0]);
  group::scatter(group, rank == 1 ? &two : nullptr, one, 1, stream, &requests[1]);
  group::all_to_all(group, two, swapped.tensor(group), {}, stream, &requests[2]);
  group::all_gather_counts(group, two, all.tensor(group), {2, 2}, stream, &requests[3]);
  expect(!requests[0]->wait(50), "the stream stands still");
  paused.resume();
  for (size_t at = requests.size(); at-- > 0;) expect(wait(requests[at]), "it has ended");
  const auto read = [&](const OnGpu& of) { return read_on(mine.stream, rank, of.array.data(), of.array.bytes() / 4); };
  if (rank == 0) expect(read(whole) == std::vector<float>{0, 10, 1, 11}, "gathered");
  expect(read(part) == std::vector<float>{rank == 0 ? 1.0F : 11.0F}, "scattered");
  expect(read(swapped) == (rank == 0 ? std::vector<float>{0, 1} : std::vector<float>{10, 11}), "exchanged");
  expect(read(all) == std::vector<float>{0, 10, 1, 11}, "gathered by all");
  group.barrier();
}

/// They use nothing of NCCL, so its order does not matter.
ddp_case(they_are_posted_while_a_pass_is_open) {
  FakeGpus gpus;
  run_gpu_groups(2, [](group::Group& group, int rank) {
    SmallGpuModel small(group, rank);
    OnGpu mine(rank, 2), all(rank, 4), taken(rank, 2);
    RequestPtr gathered, sent, received;
    group.barrier(&gathered);
    expect(wait(gathered), "the channel is open");
    small.model.begin_backward(DDP_PASS_REDUCE);
    mine.write({static_cast<float>(rank), 5});
    group::all_gather_counts(group, mine.tensor(group), all.tensor(group), {2, 2}, mine.stream.get(), &gathered);
    send(group, mine, 1, &sent);
    receive(group, taken, 1, &received);
    expect(wait(gathered) && wait(sent) && wait(received), "in the pass");
    expect(read_on(mine.stream, rank, all.array.data(), 4) == std::vector<float>{0, 5, 1, 5}, "gathered");
    expect(taken.read() == std::vector<float>{static_cast<float>(1 - rank), 5}, "received");
    write_on(small.stream.get(), small.fresh, small.grad.data());
    small.mark_and_end();
    expect(read_on(small.stream, rank, small.grad.data(), kCount) == std::vector<float>(kCount, 1.5F), "the mean");
    group.barrier();
  });
  FakeGpus::expect_correct();
}

/// The stream is captured when it has ended: the copy would be in the graph.
ddp_ranks_case(run_on_gpus, an_end_that_is_learned_of_in_a_capture_can_be_had_after_it, 2) {
  OnGpu mine(rank), taken(rank);
  RequestPtr received;
  receive(group, taken, 1, &received);
  mine.write(numbers(rank));
  group::send_message(group, mine.tensor(group), 1 - rank, 1, mine.stream.get());
  wait_until([&] { return received->ended(); });
  const fake_gpu::GraphPtr graph = capture(taken.stream.get(), [&] {
    expect_error(DDP_ERROR_INVALID_STATE, [&] { static_cast<void>(wait(received)); },
                 {"what came is copied to the GPU in the order of this stream"});
  });
  expect(fake_gpu::graph_operations(graph).empty(), "nothing is in it");
  expect(wait(received), "again");
  expect(taken.read() == numbers(1 - rank), "what came");
  group.barrier();
}

/// Destroyed without a wait: what came is dropped, and nothing touches the tensor or the stream.
ddp_ranks_case(run_on_gpus, what_is_given_up_leaves_the_tensor_alone, 2) {
  OnGpu mine(rank), taken(rank), never(rank);
  RequestPtr received, withdrawn, sent;
  receive(group, taken, 1, &received);
  receive(group, never, 2, &withdrawn);
  mine.write(numbers(rank));
  send(group, mine, 1, &sent);
  wait_until([&] { return received->ended(); });
  received->release();
  withdrawn->release();
  received.reset();
  withdrawn.reset();
  expect(taken.read() == std::vector<float>(kCount, -1) && never.read() == taken.read(), "as they were");
  expect(wait(sent), "sent");
  mine.stream.synchronize();
  group.barrier();
}

/// The copies outlive the group.
ddp_case(a_break_ends_what_waits_for_a_stream) {
  for (const bool aborted : {true, false}) {
    const FakeGpus gpus;
    std::vector<RequestPtr> kept(6);
    std::atomic<int> posted{0};
    run_gpu_groups(2, [&](group::Group& group, int rank) {
      OnGpu mine(rank, 4);
      const OnGpu taken(rank, 4);
      RequestPtr* const requests = &kept[static_cast<size_t>(rank) * 3];
      group.barrier(&requests[0]);
      expect(wait(requests[0]), "the channel is open");
      const Paused paused(mine);
      mine.write(numbers(rank, 4));
      send(group, mine, 1, &requests[0]);
      group::all_to_all(group, mine.tensor(group), taken.tensor(group), {}, mine.stream.get(), &requests[1]);
      receive(group, mine, 9, &requests[2]);
      ++posted;
      wait_until([&] { return posted == 2; });
      const bool leaves = !aborted && rank == 0;
      if (leaves) group.close();
      if (aborted && rank == 0) group.health().abort(Error(DDP_ERROR_ABORTED, "enough"));
      if (!aborted && rank == 1) paused.resume();             // its requests wait for the stream
      for (int at = aborted || leaves ? 0 : 1; at < 3; ++at)  // a small message is sent in any case
        expect_error(leaves ? DDP_ERROR_INVALID_STATE : DDP_ERROR_ABORTED, [&] { static_cast<void>(wait(requests[at])); },
                     {aborted  ? "enough"
                      : leaves ? "the group was destroyed"
                               : "rank 0 ("});
      if (aborted || leaves) {
        expect(fake_gpu::pending(mine.stream.get()) > 0, "the copies are still to come");
        paused.resume();
      }
    });
    kept.clear();
    FakeGpus::expect_clean();
  }
}

ddp_case(a_gpu_that_is_lost_is_the_error_of_the_request) {
  run_on_gpus(2, [](group::Group& group, int rank) {
    OnGpu mine(rank), taken(rank);
    RequestPtr sent, received;
    if (rank == 1) receive(group, taken, 1, &received);
    group.barrier();
    if (rank == 0) {
      const Paused paused(mine);
      mine.write(numbers(0));
      send(group, mine, 1, &sent);
      fake_gpu::inject({"event_query", 1, 1000, DDP_GPU_LOST, 0});
      expect_error(DDP_ERROR_PEER_FAILED, [&] { static_cast<void>(wait(sent)); }, {"lost its GPU 0"});
      fake_gpu::clear_faults();
      paused.resume();
      mine.stream.synchronize();
    } else {
      expect_error(DDP_ERROR_PEER_FAILED, [&] { static_cast<void>(wait(received)); }, {"rank 0"});
    }
  });
}
