// SPDX-License-Identifier: Apache-2.0
// Posted collectives and messages on every transport: threads, shared memory, Gloo, and hosts with two ranks each. The
// oracle of a collective is the blocking call, whose own tests have another one.
#include "group/requests.hpp"

#include "ddp/messages.h"
#include "group/channels.hpp"
#include "group/messages.hpp"
#include "support/check.hpp"
#include "support/path_array.hpp"

using group::Request;
using group::RequestPtr;

constexpr int kRanks = 4;
constexpr int64_t kSizes[] = {0, 1, 1000, 70'000, 400'000};

std::vector<float> numbers(int from, int about, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t at = 0; at < values.size(); ++at)
    values[at] = static_cast<float>(from * 1000 + about) + static_cast<float>(at % 977) / 8;
  return values;
}

Tensor tensor_of(std::vector<float>& values) {
  return flat_tensor(values.data(), DDP_F32, static_cast<int64_t>(values.size()));
}

/// One collective: its input, and the output that a rank looks at afterwards.
struct Call {
  Path path;
  int kind;
  std::vector<float> numbers, wanted{};  // wanted: of the blocking call
  std::unique_ptr<PathArray> input{}, output{};
  RequestPtr request{};

  void make(group::Group& group, RequestPtr* posting);
  /// A posted one: made before as a blocking call.
  void post(group::Group& group) { make(group, &request); }
  void check() const {
    expect(request->wait(Request::kForEver), "it has ended");
    const std::vector<float>& got = output->values();
    expect(wanted.empty() || std::memcmp(got.data(), wanted.data(), wanted.size() * sizeof(float)) == 0,
           "the bits of the blocking call");
  }
};
constexpr int kKinds = 10;

void Call::make(group::Group& group, RequestPtr* posting) {
  const int rank = group.rank(), root = kind % kRanks;
  const auto count = static_cast<int64_t>(numbers.size());
  input = std::make_unique<PathArray>(path, group, numbers);
  output = std::make_unique<PathArray>(path, group, numbers);
  const Tensor in = input->tensor(), in_place = output->tensor();
  const auto sized = [&](int64_t elements) {
    output = std::make_unique<PathArray>(path, group, elements);
    return output->tensor();
  };
  switch (kind) {
    case 0: return group.all_reduce(in_place, DDP_SUM, nullptr, posting);
    case 1: return group.all_reduce(in_place, DDP_AVERAGE, nullptr, posting);
    case 2: return group.all_gather(in, sized(count * kRanks), nullptr, posting);
    case 3:
      return group.reduce_scatter(flat_part(in, 0, count / kRanks * kRanks), sized(count / kRanks), DDP_SUM, nullptr,
                                  posting);
    case 4: return group.broadcast(in_place, root, nullptr, posting);
    case 5: return group.barrier(posting);
    case 6: {
      const Tensor all = sized(rank == root ? count * kRanks : 0);
      return group::gather(group, in, rank == root ? &all : nullptr, root, nullptr, posting);
    }
    case 7: {
      const Tensor part = sized(count / kRanks), whole = flat_part(in, 0, count / kRanks * kRanks);
      return group::scatter(group, rank == root ? &whole : nullptr, part, root, nullptr, posting);
    }
    case 8: {
      const int64_t whole = count / kRanks * kRanks;
      return group::all_to_all(group, flat_part(in, 0, whole), sized(whole), {}, nullptr, posting);
    }
    default: {
      std::vector<int64_t> given;
      for (int64_t from = 0; from < kRanks; ++from) given.push_back(count == 0 ? 0 : 1 + count / (from + 1));
      int64_t sum = 0;
      for (const int64_t each : given) sum += each;
      std::vector<float> mine = numbers;
      mine.resize(static_cast<size_t>(given[static_cast<size_t>(rank)]), static_cast<float>(rank));
      input = std::make_unique<PathArray>(path, group, mine);
      return group::all_gather_counts(group, input->tensor(), sized(sum), given, nullptr, posting);
    }
  }
}

Call prepared(Path path, group::Group& group, int kind, int64_t count) {
  Call call{path, kind, numbers(group.rank(), kind, count)};
  call.make(group, nullptr);
  call.wanted = call.output->values();
  return call;
}

ddp_ranks_case_on(kEveryPath, run_on, every_collective_has_the_bits_of_its_blocking_form, kRanks) {
  for (const int64_t count : kSizes)
    for (int kind = 0; kind < kKinds; ++kind) {
      Call call = prepared(path, group, kind, count);
      call.post(group);
      call.check();
    }
  expect(group.channels().requests().is_idle(), "nothing is left");
}

ddp_ranks_case_on(kEveryPath, run_on, many_are_open_and_waited_for_in_any_order, kRanks) {
  std::vector<Call> calls;
  calls.reserve(3 * kKinds);
  for (int turn = 0; turn < 3; ++turn)
    for (int kind = 0; kind < kKinds; ++kind) calls.push_back(prepared(path, group, kind, kSizes[(turn + kind) % 5]));
  for (Call& call : calls) call.post(group);
  for (size_t at = 0; at < calls.size(); ++at)  // another order on each rank
    calls[(at * 7 + static_cast<size_t>(rank) * 11) % calls.size()].check();
}

ddp_ranks_case_on(kEveryHostPath, run_on, blocking_calls_are_made_meanwhile, kRanks) {
  RequestPtr first;
  group.barrier(&first);  // all ranks open the channel here
  for (int turn = 0; turn < 20; ++turn) {
    Call call = prepared(path, group, turn % kKinds, 5000);
    if (rank % 2 == 0) call.post(group);
    float sum = 1;
    group.all_reduce(flat_tensor(&sum, DDP_F32, 1), DDP_SUM);
    expect_equal(sum, static_cast<float>(kRanks), "the sum");
    if (rank % 2 == 1) call.post(group);
    call.check();
  }
}

ddp_ranks_case_on(kEveryHostPath, run_on, what_is_tested_ends_by_itself, kRanks) {
  std::vector<float> values = numbers(1, 0, 100'000);
  RequestPtr first, second;
  group.all_reduce(tensor_of(values), DDP_MAX, nullptr, &first);
  group.barrier(&second);
  while (!second->test()) std::this_thread::yield();
  expect(first->ended(), "the earlier one ended before");
  expect(values == numbers(1, 0, 100'000), "the result");
}

ddp_ranks_case_on(kEveryHostPath, run_on, what_nobody_waits_for_goes_on, 2) {
  std::vector<float> sum(1000, 1), large = numbers(0, 1, 200'000), got(200'000);
  RequestPtr reduced, moved;
  group.all_reduce(tensor_of(sum), DDP_SUM, nullptr, &reduced);
  if (rank == 0)
    group::send_message(group, tensor_of(large), 1, 3, nullptr, &moved);
  else
    group::receive_message(group, tensor_of(got), 0, 3, nullptr, &moved);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto all = [&] { return reduced->ended() && moved->ended(); };
  while (!all() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  expect(all(), "without a call that waits");
  if (rank == 1) expect(got == large, "the message");
  expect_equal(sum.front(), 2.0F, "the sum");
  group.barrier();
}

ddp_ranks_case_on(kEveryPath, run_on, messages_are_received_in_the_order_of_posting, 2) {
  const int other = 1 - rank;
  std::vector<std::unique_ptr<PathArray>> sent, got;
  std::vector<RequestPtr> requests;
  constexpr size_t kMessages = 15;
  for (size_t at = 0; at < kMessages; ++at) {
    const Path home = at % 4 == 3 ? Path::kLocal : path;  // with some of the host among those of a GPU
    sent.push_back(std::make_unique<PathArray>(home, group, numbers(rank, static_cast<int>(at), kSizes[at % 5])));
    got.push_back(std::make_unique<PathArray>(path, group, kSizes[at % 5]));
  }
  for (size_t at = 0; at < kMessages; ++at)
    group::receive_message(group, got[at]->tensor(), at % 2 == 0 ? other : DDP_ANY_SOURCE, 4, nullptr,
                           &requests.emplace_back());
  for (size_t at = 0; at < kMessages; ++at)
    group::send_message(group, sent[at]->tensor(), other, 4, nullptr, &requests.emplace_back());
  for (size_t at = requests.size(); at-- > 0;) expect(requests[at]->wait(Request::kForEver), "it has ended");
  for (size_t at = 0; at < kMessages; ++at) {
    expect_equal(requests[at]->source(), other, "the sender");
    expect(got[at]->values() == numbers(other, static_cast<int>(at), kSizes[at % 5]), "message " + std::to_string(at));
  }
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_on, the_first_of_several_is_found, 2) {
  std::vector<float> never(1), soon(1, static_cast<float>(rank)), sum(1, 1);
  std::vector<RequestPtr> requests(3);
  int32_t found = -2;
  group::receive_message(group, tensor_of(never), 1 - rank, 1, nullptr, &requests[0]);
  group::receive_message(group, tensor_of(soon), 1 - rank, 2, nullptr, &requests[1]);
  expect_equal(group::wait_any({requests[0], requests[1]}, 20, &found), -1, "none has come");
  group.barrier();
  std::vector<float> mine(1, static_cast<float>(10 + rank));
  group::send_message(group, tensor_of(mine), 1 - rank, 2);
  expect_equal(group::wait_any({requests[0], requests[1]}, Request::kForEver, &found), 1, "the second");
  expect_equal(soon[0], static_cast<float>(11 - rank), "its message");
  group.all_reduce(tensor_of(sum), DDP_SUM, nullptr, &requests[2]);
  expect_equal(group::wait_any({requests[0], requests[2]}, Request::kForEver, &found), 1, "the collective");
  expect(!requests[0]->wait(5), "the first waits on");
  requests[0]->release();  // withdrawn: nothing has come
  group.barrier();
  group::send_message(group, tensor_of(mine), 1 - rank, 1);
  std::vector<float> last(1);
  expect_equal(group::receive_message(group, tensor_of(last), 1 - rank, 1), 1 - rank, "the next receive gets it");
  expect_equal(last[0], static_cast<float>(11 - rank), "the message");
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_on, counts_that_do_not_fit_are_the_error_of_the_request, 2) {
  std::vector<float> input(4), output(4, -1);
  RequestPtr wrong, next;
  group::all_to_all(group, tensor_of(input), tensor_of(output), {{2, 2}, {rank == 0 ? 1 : 2, rank == 0 ? 3 : 2}}, nullptr,
                    &wrong);
  group.barrier(&next);
  for (int time = 0; time < 2; ++time)
    expect_error(DDP_ERROR_MISMATCH, [&] { static_cast<void>(wrong->wait(Request::kForEver)); },
                 {"ddp_group_post_all_to_all: rank"});
  expect(next->wait(Request::kForEver), "the group stays whole");
  group.barrier();
}

/// A group that ends within the test.
void run_to_the_end_on(Path path, int size, const std::function<void(group::Group&, int)>& body) {
  run_at(path, size, [&](const std::string& place, const ddp_group_options& options, int rank) {
    body(*group::Group::create(place.c_str(), options), rank);
  });
}

ddp_ranks_case_on(kEveryHostPath, run_to_the_end_on, different_requests_are_named, 2) {
  std::vector<float> values(8);
  RequestPtr request;
  group.barrier(&request);
  expect(request->wait(Request::kForEver), "the first");
  if (rank == 0)
    group.all_reduce(tensor_of(values), DDP_SUM, nullptr, &request);
  else
    group.broadcast(tensor_of(values), 0, nullptr, &request);
  const std::string text =
      expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] { static_cast<void>(request->wait(Request::kForEver)); });
  expect_contains(text, "ddp_group_post_all_reduce");
  expect_contains(text, "ddp_group_post_broadcast");
  expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] { group.barrier(&request); });
}

/// Each rank waits for a call that the other rank would make later.
ddp_ranks_case_on(kEveryHostPath, run_to_the_end_on, a_wait_that_is_crossed_by_another_is_found, 2) {
  RequestPtr request;
  group.barrier(&request);
  expect(request->wait(Request::kForEver), "the first");
  const auto begin = std::chrono::steady_clock::now();
  expect_error(DDP_ERROR_DIFFERENT_CALLS,
               [&] {
                 if (rank == 0) {
                   group.barrier(&request);
                   static_cast<void>(request->wait(Request::kForEver));
                 }
                 group.barrier();
               },
               {"ddp_group_post_barrier", "ddp_group_barrier"});
  expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "at once");
}

/// A rank whose wait ends by itself makes the call for which the other one waits.
ddp_ranks_case_on(kEveryHostPath, run_on, a_wait_with_a_limit_is_not_crossed, 2) {
  RequestPtr request;
  group.barrier(&request);
  expect(request->wait(Request::kForEver), "the first");
  if (rank == 0) {
    group.barrier(&request);
    expect(!request->wait(1'500), "the other rank posts it later");  // the check of the group takes 0.3 s
  }
  group.barrier();
  if (rank == 1) group.barrier(&request);
  expect(request->wait(Request::kForEver), "it ends");
}

/// A thread that waits for one message moves all, also that for which another thread waits.
ddp_ranks_case_on(kEveryHostPath, run_on, a_thread_hears_of_what_another_has_moved, 2) {
  std::vector<float> one(1), two(1), three(1);
  const int other = 1 - rank;
  if (rank == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // by then both threads wait
    group::send_message(group, tensor_of(two), other, 2);
    static_cast<void>(group::receive_message(group, tensor_of(three), other, 3));
    group::send_message(group, tensor_of(one), other, 1);
  } else {
    RequestPtr first, second;
    group::receive_message(group, tensor_of(one), other, 1, nullptr, &first);
    group::receive_message(group, tensor_of(two), other, 2, nullptr, &second);
    std::thread waits([&] { static_cast<void>(first->wait(Request::kForEver)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    int32_t found = -1;
    const auto begin = std::chrono::steady_clock::now();
    expect_equal(group::wait_any({second}, 10'000, &found), 0, "the message");
    const auto took = std::chrono::steady_clock::now() - begin;
    group::send_message(group, tensor_of(three), other, 3);
    waits.join();
    expect(took < std::chrono::seconds(5), "at once");
  }
  group.barrier();
}

ddp_ranks_case_on(kEveryHostPath, run_to_the_end_on, an_abort_ends_all, 2) {
  std::vector<float> values(100'000), nothing(3);
  std::vector<RequestPtr> requests(4);
  group.barrier(&requests[0]);
  expect(requests[0]->wait(Request::kForEver), "the first");
  group::receive_message(group, tensor_of(nothing), 1 - rank, 9, nullptr, &requests[1]);
  if (rank == 0) {
    group.all_reduce(tensor_of(values), DDP_SUM, nullptr, &requests[2]);
    group.barrier(&requests[3]);
    std::thread aborts([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      group.health().abort(Error(DDP_ERROR_ABORTED, "cancelled on purpose"));
    });
    for (size_t at = 3; at > 0; --at)
      expect_error(DDP_ERROR_ABORTED, [&] { static_cast<void>(requests[at]->wait(Request::kForEver)); },
                   {"cancelled on purpose"});
    aborts.join();
  } else {
    expect_error(DDP_ERROR_ABORTED, [&] { static_cast<void>(requests[1]->wait(Request::kForEver)); },
                 {"cancelled on purpose"});
  }
  expect_error(DDP_ERROR_ABORTED, [&] { group.barrier(&requests[0]); });
}

ddp_ranks_case_on(kEveryHostPath, run_to_the_end_on, a_group_that_is_left_ends_what_is_open, 2) {
  std::vector<RequestPtr> requests(2);
  std::vector<float> nothing(1);
  group.barrier(&requests[0]);
  expect(requests[0]->wait(Request::kForEver), "the first");
  if (rank == 0) {
    group.barrier(&requests[0]);
    group::receive_message(group, tensor_of(nothing), 1, 2, nullptr, &requests[1]);
    group.close();
    for (const RequestPtr& each : requests)
      expect_error(DDP_ERROR_INVALID_STATE, [&] { static_cast<void>(each->wait(Request::kForEver)); });
    expect_error(DDP_ERROR_INVALID_STATE, [&] { group.barrier(&requests[0]); });
  } else {
    group::receive_message(group, tensor_of(nothing), 0, 2, nullptr, &requests[1]);
    expect_error(DDP_ERROR_ABORTED, [&] { static_cast<void>(requests[1]->wait(Request::kForEver)); }, {"rank 0 ("});
  }
}
