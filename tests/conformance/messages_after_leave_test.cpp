// SPDX-License-Identifier: Apache-2.0
// Messages of the ranks that stay after one has left in good order, on every transport: those that wait for another rank
// that leaves, is late or cannot be reached learn it soon, and by its name. Each rank has a second group, in which nobody
// leaves before all are done.
#include "core/attempt.hpp"
#include "ddp/messages.h"
#include "group/messages.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

constexpr int kRanks = 4;
constexpr int kFirst = 0, kSecond = 1, kWaits = 2;  // of the ranks: the first two that leave, and one that waits

Tensor tensor_of(std::vector<float>& values) {
  return flat_tensor(values.data(), DDP_F32, static_cast<int64_t>(values.size()));
}

using Body = std::function<void(group::Group&)>;

/// kFirst leaves, and then kSecond and kWaits do what they do. `connected`: these two have had a message.
void after_a_leave(Path path, bool connected, int64_t timeout_ms, const Body& second, const Body& waits) {
  run_at(path, kRanks, [&](const std::string& place, ddp_group_options options, int rank) {
    const auto stays = group::Group::create((place + "#stays").c_str(), options);
    options.timeout_ms = timeout_ms;
    const auto group = group::Group::create((place + "#left").c_str(), options);
    std::vector<float> one{1};
    if (connected && rank == kSecond) group::send_message(*group, tensor_of(one), kWaits, 1);
    if (connected && rank == kWaits) static_cast<void>(group::receive_message(*group, tensor_of(one), kSecond, 1));
    group->barrier();
    if (rank == kFirst) group->close();
    wait_until([&] { return try_to([&] { group->health().check_usable(); }).has_value(); });
    const auto begin = std::chrono::steady_clock::now();
    if (rank == kSecond) second(*group);
    if (rank == kWaits) waits(*group);
    expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20), "nobody waits for the time limit");
    stays->barrier();
  });
}

/// The error of a receive from kSecond.
std::string receive_in_vain(group::Group& group, ddp_status status) {
  std::vector<float> one(1);
  return expect_error(status, [&] { static_cast<void>(group::receive_message(group, tensor_of(one), kSecond, 2)); });
}

ddp_case_on(kEveryHostPath, a_second_rank_that_leaves_is_named) {
  after_a_leave(
      path, true, 60'000, [](group::Group& group) { group.close(); },
      [](group::Group& group) { expect_contains(receive_in_vain(group, DDP_ERROR_ABORTED), "rank 1 ("); });
}

ddp_case_on(kEveryHostPath, a_second_rank_that_leaves_with_an_open_request_is_named) {
  std::vector<float> never(1);
  group::RequestPtr open;
  after_a_leave(
      path, true, 60'000,
      [&](group::Group& group) {
        static_cast<void>(group::receive_message(group, tensor_of(never), kWaits, 7, nullptr, &open));
        group.close();
      },
      [](group::Group& group) { expect_contains(receive_in_vain(group, DDP_ERROR_ABORTED), "rank 1 ("); });
}

ddp_case_on(kEveryHostPath, a_rank_that_is_late_then_is_named_and_is_late) {
  after_a_leave(
      path, true, 500, [](group::Group&) {},
      [](group::Group& group) {
        expect_contains(receive_in_vain(group, DDP_ERROR_TIMED_OUT), "rank 1 (");
        expect_contains(receive_in_vain(group, DDP_ERROR_TIMED_OUT), "rank 1 (");  // and later calls repeat it
        expect_contains(expect_error(DDP_ERROR_ABORTED, [&] { group.barrier(); }), "rank 0 (");
      });
}

// The first connection of two ranks is made through rank 0, which makes none any more.
ddp_case_on(kEveryHostPath, ranks_that_cannot_be_reached_any_more_do_not_wait) {
  const bool has_streams = path == Path::kLocal || path == Path::kShm;
  after_a_leave(
      path, false, 60'000,
      [&](group::Group& group) {
        std::vector<float> one{5};
        if (has_streams) return group::send_message(group, tensor_of(one), kWaits, 2);
        expect_error(DDP_ERROR_ABORTED, [&] { group::send_message(group, tensor_of(one), kWaits, 2); },
                     {"no connection for messages to rank 2 (", "rank 0 (", "left the group"});
      },
      [&](group::Group& group) {
        std::vector<float> one(1);
        if (has_streams)
          static_cast<void>(group::receive_message(group, tensor_of(one), kSecond, 2));
        else
          expect_contains(receive_in_vain(group, DDP_ERROR_ABORTED), "no connection for messages to rank 1 (");
      });
}
