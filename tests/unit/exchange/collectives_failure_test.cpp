// SPDX-License-Identifier: Apache-2.0
// The collectives of linked members when ranks disagree, one is late, or one has left: all get the error, in time, with one
// text that names the right rank.

#include "support/check.hpp"
#include "support/socket_world.hpp"

// Every rank must fail with DIFFERENT_CALLS and the same text.
void check_mismatch(int ranks, const std::function<void(int, collective::Transport&)>& call,
                    const std::vector<std::string>& parts) {
  RailWorld world(ranks);
  std::vector<std::string> texts(static_cast<size_t>(ranks));
  world.run([&](int rank, collective::Transport& transport) {
    texts[static_cast<size_t>(rank)] = expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] {
      call(rank, transport);
      transport.barrier();
    });
  });
  for (const auto& text : texts) {
    expect_equal(text, texts.front(), "one text on all ranks");
    for (const auto& part : parts) expect_contains(text, part);
  }
  expect_equal(local_endpoint_size_violations(), int64_t{0}, "messages that met a receive of another size");
}

ddp_case(ranks_that_disagree_on_the_size_all_learn_it) {
  for (const int ranks : {2, 3, 5})
    check_mismatch(ranks,
                   [&](int rank, collective::Transport& transport) {
                     std::vector<float> data(100'000);
                     transport.all_reduce(flat_tensor(data.data(), DDP_F32, rank == 1 ? 50'000 : 100'000), DDP_SUM);
                   },
                   {"rank 0 (host host0, pid 1000)", "100000 F32", "rank 1 (host host1", "50000 F32"});
}

ddp_case(ranks_in_different_collectives_all_learn_it) {
  check_mismatch(4,
                 [&](int rank, collective::Transport& transport) {
                   std::vector<float> data(10'000);
                   if (rank == 3)
                     transport.broadcast(flat_tensor(data.data(), DDP_F32, 10'000), 2);
                   else
                     transport.barrier();
                 },
                 {"rank 2", "barrier #1", "rank 3", "broadcast #1"});
}

ddp_case(equal_sizes_of_different_types_are_refused) {
  check_mismatch(2,
                 [&](int rank, collective::Transport& transport) {
                   std::vector<float> data(1000);
                   transport.all_reduce(flat_tensor(data.data(), rank == 0 ? DDP_F32 : DDP_I32, 1000), DDP_SUM);
                 },
                 {"F32", "I32"});
}

ddp_case(buckets_of_different_plans_are_refused) {
  check_mismatch(
      3,
      [&](int rank, collective::Transport& transport) {
        std::vector<float> data(5000, 4.0F);
        collective::BucketSpec spec = spec_of({{reinterpret_cast<std::byte*>(data.data()), 5000, false}}, DDP_F32, 3);
        if (rank == 2) spec.plan_hash = 98;
        const auto bucket = transport.prepare(spec);
        bucket->start(collective::BucketHeader{});
        bucket->finish();
      },
      {"bucket 3", "of another model or plan"});
}

ddp_case(a_failure_elsewhere_ends_a_blocked_wait_with_its_cause) {
  RailWorld world(3);
  std::atomic<int64_t> aborted_at{0};
  std::atomic<int> ready{0};
  world.run([&](int rank, collective::Transport& transport) {
    transport.barrier();
    ++ready;
    if (rank == 1) {
      const os::Deadline limit = os::Deadline::in_ms(10'000);
      while (ready < 3 && !limit.passed()) std::this_thread::yield();
      aborted_at = os::now_ns();
      world.control(1).abort(Error(DDP_ERROR_PEER_FAILED, "rank 7 is dead"));
      return;
    }
    std::vector<float> data(100'000);
    const std::string text = expect_error(
        DDP_ERROR_PEER_FAILED, [&] { transport.all_reduce(flat_tensor(data.data(), DDP_F32, 100'000), DDP_SUM); });
    expect_equal(text, std::string("rank 7 is dead"), "first cause");
  });
  expect(os::now_ns() - aborted_at < 1'000'000'000, "waits end at once");
}

ddp_case(a_rank_that_does_not_come_is_named_when_time_is_up) {
  for (int late = 0; late < 4; ++late) {
    RailWorld world(4, 0, 400);
    std::atomic<int> failed{0};
    std::vector<std::string> texts(4);
    world.run([&](int rank, collective::Transport& transport) {
      if (rank == late) {
        const os::Deadline limit = os::Deadline::in_ms(20'000);
        while (failed < 3 && !limit.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return;
      }
      const int64_t begin = os::now_ns();
      texts[static_cast<size_t>(rank)] = expect_error(DDP_ERROR_TIMED_OUT, [&] { transport.barrier(); });
      expect(os::now_ns() - begin >= 380'000'000, "not before the time is up");
      ++failed;
    });
    for (int rank = 0; rank < 4; ++rank)
      if (rank != late) {
        expect_contains(texts[static_cast<size_t>(rank)],
                        "rank " + std::to_string(late) + " (host host" + std::to_string(late));
        expect_contains(texts[static_cast<size_t>(rank)], "was last heard in this test");
      }
  }
}

/// The link from rank 2 to rank 1 is slow. Rank 0 waits for rank 1, which waits for rank 2.
struct SlowLink {
  explicit SlowLink(int64_t ms) { local_endpoint_slow_down(2, 1, ms); }
  ~SlowLink() { local_endpoint_slow_down(2, 1, 0); }
};

ddp_case(a_slow_link_is_not_dead) {
  const SlowLink slow(1'200);
  for (const int64_t count : {100'000, 1'000'000}) {  // with the header, and in messages of its own
    RailWorld world(3, 0, 400);
    world.run([&](int rank, collective::Transport& transport) {
      std::vector<float> data(static_cast<size_t>(count), static_cast<float>(rank + 1));
      transport.all_reduce(flat_tensor(data.data(), DDP_F32, count), DDP_SUM);
      for (const float each : data) expect(each == 6, "the sum");
    });
  }
}

ddp_case(of_a_dead_link_all_learn_the_same) {
  const SlowLink dead(kDeadLink);
  RailWorld world(3, 0, 400);
  std::vector<std::string> texts(3);
  world.run([&](int rank, collective::Transport& transport) {
    std::vector<float> data(100'000);
    texts[static_cast<size_t>(rank)] = expect_error(
        DDP_ERROR_TIMED_OUT, [&] { transport.all_reduce(flat_tensor(data.data(), DDP_F32, 100'000), DDP_SUM); });
  });
  for (const std::string& text : texts) expect_equal(text, texts.front(), "one text on all ranks");
  expect_contains(texts.front(), "rank 2 (host host2, pid 1002) did not take part in all-reduce #1");
}

ddp_case(a_rank_that_left_is_named_by_the_next_collective) {
  RailWorld world(2);
  world.run([&](int rank, collective::Transport& transport) {
    transport.barrier();
    if (rank == 1) return;  // sends its goodbye and closes its links
    std::vector<float> data(100'000);
    const auto text = [&] {
      return expect_error(DDP_ERROR_ABORTED,
                          [&] { transport.all_reduce(flat_tensor(data.data(), DDP_F32, 100'000), DDP_SUM); });
    };
    expect_contains(text(), "rank 1 (host host1, pid 1001) left the group before all-reduce #2");
    expect_contains(text(), "left the group before all-reduce #2");
  });
}
