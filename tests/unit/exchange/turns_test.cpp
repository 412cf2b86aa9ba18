// SPDX-License-Identifier: Apache-2.0
// Members that take turns after packets were lost, with ranks as threads over the in-process endpoint: the bits, how many
// are asked at a time, and a void bucket.

#include "socket/collectives.hpp"
#include "support/check.hpp"
#include "support/socket_world.hpp"
#include "support/values.hpp"

// One member of six loses packets in the first sum. It reports that with the second, and the third is the first in turns.
ddp_case(after_a_loss_members_take_turns_with_the_same_bits) {
  constexpr int64_t kCount = 1'400'003;
  constexpr int kRanks = 6;
  const auto inputs = random_inputs(kRanks, DDP_F32, kCount, 33);
  const Bytes wanted = reduced(inputs, DDP_F32, DDP_SUM, kCount);
  RailWorld world(kRanks);
  world.run([&](int rank, collective::Transport& transport) {
    Bytes mine;
    const auto sum = [&] {
      mine = inputs[static_cast<size_t>(rank)];
      transport.all_reduce(flat_tensor(mine.data(), DDP_F32, kCount), DDP_SUM);
      expect(mine == wanted, "the bits");
      transport.barrier();
    };
    const auto asked_at_a_time = [&](int64_t least, int64_t most) {
      transport.barrier();
      const int64_t asked = rank == 0 ? local_endpoint_take_most_asked() : least;
      expect(asked >= least && asked <= most, "members asked at a time: " + std::to_string(asked));
      transport.barrier();
    };
    asked_at_a_time(0, 100);  // of other tests
    if (rank == 3) local_endpoint_lose(3, 1'000'000);
    sum();
    if (rank == 3) local_endpoint_lose(3, 0);
    asked_at_a_time(2, kRanks - 1);
    for (int call = 0; call < 3; ++call) sum();
    asked_at_a_time(1, 1);
    const int64_t part = kCount / kRanks;
    std::vector<float> values(static_cast<size_t>(part * kRanks), static_cast<float>(rank));
    transport.all_gather(flat_tensor(values.data() + rank * part, DDP_F32, part),
                         flat_tensor(values.data(), DDP_F32, part * kRanks));
    for (int64_t i = 0; i < part * kRanks; ++i)
      expect_equal(values[static_cast<size_t>(i)], static_cast<float>(i / part), "gathered in turns");
    asked_at_a_time(0, 1);
    std::vector<float> scattered(static_cast<size_t>(part));
    transport.reduce_scatter(flat_tensor(values.data(), DDP_F32, part * kRanks),
                             flat_tensor(scattered.data(), DDP_F32, part), DDP_SUM);
    for (const float value : scattered) expect_equal(value, static_cast<float>(kRanks * rank), "scattered in turns");
    asked_at_a_time(0, 1);
  });
}

// The bucket is void where a rank is not complete: receives that were posted ahead, for turns too, are cancelled.
ddp_case(a_void_bucket_in_turns_leaves_everything_as_it_was) {
  constexpr int64_t kCount = 1'400'003;
  constexpr int kRanks = 6;
  RailWorld world(kRanks);
  world.run([&](int rank, collective::Transport& transport) {
    std::vector<float> data(static_cast<size_t>(kCount), 1.0F);
    collective::BucketSpec spec = spec_of({{reinterpret_cast<std::byte*>(data.data()), kCount, false}}, DDP_F32, kRanks);
    const auto bucket = transport.prepare(spec);
    const auto pass = [&](bool incomplete) {
      std::fill(data.begin(), data.end(), static_cast<float>(rank));
      bucket->start(collective::BucketHeader{incomplete, {uint64_t{1}}, collective::Participation{}});
      bucket->finish();
      const float wanted = incomplete || bucket->header().is_void() ? static_cast<float>(rank) : 2.5F;
      for (const float value : data) expect_equal(value, wanted, "the average, or what was there");
    };
    if (rank == 0) local_endpoint_lose(0, 1'000'000);
    pass(false);
    if (rank == 0) local_endpoint_lose(0, 0);
    pass(false);
    pass(rank == 4);
    pass(false);
  });
}

// Of a link that dies between two exchanges all members learn the same, in either order.
ddp_case(of_a_dead_link_all_learn_the_same) {
  constexpr int64_t kCount = 1'400'003;
  constexpr int kRanks = 6;
  for (const bool in_turns : {false, true}) {
    RailWorld world(kRanks, 0, 800);
    std::vector<std::string> texts(kRanks);
    world.run([&](int rank, collective::Transport& transport) {
      std::vector<float> data(static_cast<size_t>(kCount), 1.0F);
      const auto sum = [&] { transport.all_reduce(flat_tensor(data.data(), DDP_F32, kCount), DDP_SUM); };
      if (in_turns && rank == 5) local_endpoint_lose(5, 1'000'000);
      sum();
      if (rank == 5) local_endpoint_lose(5, 0);
      sum();
      if (rank == 2) local_endpoint_slow_down(2, 1, kDeadLink);
      texts[static_cast<size_t>(rank)] = expect_error(DDP_ERROR_TIMED_OUT, [&] { sum(), sum(); });
    });
    local_endpoint_slow_down(2, 1, 0);
    for (const std::string& text : texts) expect_equal(text, texts.front(), "one text on all ranks");
    expect(texts.front().find("rank 2 (host host2") != std::string::npos, texts.front());
  }
}

// Each message over the link takes longer than a wait may: its bytes move, and ranks that wait for a waiting rank see
// that.
ddp_case(in_turns_a_slow_link_is_not_dead) {
  constexpr int64_t kCount = 400'000;
  constexpr int kRanks = 6;
  RailWorld world(kRanks, 0, 400);
  world.run([&](int rank, collective::Transport& transport) {
    std::vector<float> data(static_cast<size_t>(kCount));
    const auto sum = [&] {
      std::fill(data.begin(), data.end(), static_cast<float>(rank));
      transport.all_reduce(flat_tensor(data.data(), DDP_F32, kCount), DDP_SUM);
      for (const float value : data) expect_equal(value, 15.0F, "the sum");
    };
    if (rank == 5) local_endpoint_lose(5, 1'000'000);
    sum();
    if (rank == 5) local_endpoint_lose(5, 0);
    sum();
    if (rank == 2) local_endpoint_slow_down(2, 1, 600);
    sum();
    if (rank == 2) local_endpoint_slow_down(2, 1, 0);
  });
}
