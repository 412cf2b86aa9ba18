// SPDX-License-Identifier: Apache-2.0
// Ranks as processes over the real Gloo module: right sums, and no survivor that dies,
// hangs or names an innocent rank when a rank is killed, stopped, or disagrees. SIGPIPE keeps its default, which ends a
// process that is not careful. Skipped with a printed reason when the module is not there.
#include <sys/resource.h>

#include "bootstrap/failure.hpp"
#include "socket/transport.hpp"
#include "support/check.hpp"
#include "support/fork_run.hpp"
#include "support/no_gloo.hpp"
#include "support/values.hpp"

// One child's group.
class Child : NotCopied {
 public:
  Child(ForkHub& hub, int rank, int64_t timeout_ms = 20'000, int64_t dead_after_ms = 20'000)
      : control_(hub, rank, dead_after_ms) {
    control_.on_failure([this](const Error& cause) { failure_.set(cause); });
    ddp_group_options options{.timeout_ms = timeout_ms, .rendezvous_timeout_ms = 20'000};
    transport_ = socket::make_socket_transport(collective::TransportContext{&control_, &failure_, options},
                                               socket::load_module(), "127.0.0.1", socket::SocketOptions{});
  }
  ~Child() { transport_->shutdown(); }
  collective::Transport& operator*() { return *transport_; }
  collective::Transport* operator->() { return transport_.get(); }

 private:
  bootstrap::Failure failure_;
  ForkControl control_;
  std::unique_ptr<collective::Transport> transport_;
};

ddp_case(sums_have_the_bits_of_one_reduction) {
  for (const int ranks : {2, 3, 4, 5, 7})
    Run(ranks, [&](ForkHub& hub, int rank, Reporter&) {
      Child child(hub, rank);
      for (const ddp_dtype dtype : {DDP_F32, DDP_BF16, DDP_I64})
        for (const int64_t count : {0, 1, 2, 3, 7, 1000, 65'537, 1'000'003}) {
          const auto inputs = random_inputs(ranks, dtype, count, 9);
          Bytes mine = inputs[static_cast<size_t>(rank)];
          child->all_reduce(flat_tensor(mine.data(), dtype, count), DDP_AVERAGE);
          expect(mine == reduced(inputs, dtype, DDP_AVERAGE, count), std::to_string(count) + " " + dtype_name(dtype));
        }
      return std::string();
    }).expect_success();
}

ddp_case(the_other_collectives_work_too) {
  Run(3, [](ForkHub& hub, int rank, Reporter&) {
    Child child(hub, rank);
    for (const int64_t count : {1, 300, 100'000, 700'001}) {
      const auto inputs = random_inputs(3, DDP_F32, count, 2);
      Bytes all(static_cast<size_t>(12 * count)), mine = inputs[static_cast<size_t>(rank)];
      child->all_gather(flat_tensor(mine.data(), DDP_F32, count), flat_tensor(all.data(), DDP_F32, 3 * count));
      for (size_t r = 0; r < 3; ++r)
        expect(std::memcmp(all.data() + r * mine.size(), inputs[r].data(), mine.size()) == 0, "gathered part");
      child->broadcast(flat_tensor(mine.data(), DDP_F32, count), 1);
      expect(mine == inputs[1], "broadcast");
      Bytes part(mine.size());
      child->reduce_scatter(flat_tensor(all.data(), DDP_F32, 3 * count), flat_tensor(part.data(), DDP_F32, count),
                            DDP_AVERAGE);
      expect(part == reduced({inputs[static_cast<size_t>(rank)], inputs[static_cast<size_t>(rank)],
                              inputs[static_cast<size_t>(rank)]},
                             DDP_F32, DDP_AVERAGE, count),
             "mean of three equal parts");
      child->barrier();
    }
    return std::string();
  }).expect_success();
}

void expect_all_name(std::vector<ProcResult> results, int victim, pid_t pid, const std::string& what) {
  for (int rank = 0; rank < static_cast<int>(results.size()); ++rank) {
    if (rank == victim) continue;
    const ProcResult& result = results[static_cast<size_t>(rank)];
    expect(result.exit_code == 0 && !result.timed_out, "rank " + std::to_string(rank) + ": " + result.describe());
    expect_contains(result.text,
                    "rank " + std::to_string(victim) + " (host testhost, pid " + std::to_string(pid) + ")" + what);
    expect_contains(result.text, "DDP_ERROR_PEER_FAILED");
  }
}

ddp_case(killed_ranks_are_named_by_all_and_take_nobody_with_them) {
  std::mt19937 random(static_cast<unsigned>(getpid()));
  const char* wanted = std::getenv("DDP_TEST_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 16;
  for (int i = 0; i < kills; ++i) {
    const int64_t count = i % 2 == 0 ? 256 : 2'000'000;
    Run run(4, [&](ForkHub& hub, int rank, Reporter& report) {
      Child child(hub, rank);
      return reduce_until_it_fails(child, count, report);
    });
    const auto victim = static_cast<int>(random() % 4);
    const pid_t pid = run.procs.pid(victim);
    for (int rank = 0; rank < 4; ++rank) run.procs.wait_for(rank, "running");
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));  // a random moment
    run.procs.signal(victim, SIGKILL);
    expect_all_name(run.procs.wait(), victim, pid, " died");
  }
}

ddp_case(a_stopped_rank_is_named_when_it_is_silent_for_too_long) {
  Run run(3, [&](ForkHub& hub, int rank, Reporter& report) {
    Child child(hub, rank, 20'000, 500);
    return reduce_until_it_fails(child, 500'000, report);
  });
  for (int rank = 0; rank < 3; ++rank) run.procs.wait_for(rank, "running");
  run.procs.signal(1, SIGSTOP);
  for (const int rank : {0, 2}) static_cast<void>(run.procs.wait_one(rank));
  const pid_t pid = run.procs.pid(1);
  run.procs.signal(1, SIGCONT);  // a late riser must not do harm, and learns what happened
  expect_all_name(run.procs.wait(), 1, pid, " is silent");
}

ddp_case(a_rank_that_stops_within_an_exchange_is_named_when_time_is_up) {
  for (const int victim : {0, 2}) {
    Run run(4, [&](ForkHub& hub, int rank, Reporter& report) {
      Child child(hub, rank, 1000);
      return reduce_until_it_fails(child, 5'000'000, report);
    });
    for (int rank = 0; rank < 4; ++rank) run.procs.wait_for(rank, "running");
    run.procs.signal(victim, SIGSTOP);
    for (int rank = 0; rank < 4; ++rank)
      if (rank != victim) static_cast<void>(run.procs.wait_one(rank));
    run.procs.signal(victim, SIGCONT);
    for (const ProcResult& result : run.procs.wait()) {
      expect(result.exit_code == 0 && !result.timed_out, result.describe());
      const std::string who = "rank " + std::to_string(victim) + " (host testhost, pid " +
                              std::to_string(run.procs.pid(victim)) + ")";  // stopped between two sums, or in one
      expect(result.text.find(who + " did not take part in all-reduce") != std::string::npos ||
                 result.text.find("no data of " + who + " has come for all-reduce") != std::string::npos ||
                 result.text.find(who + " holds up all-reduce") != std::string::npos,
             result.text);
    }
  }
}

ddp_case(a_rank_that_does_not_come_is_named_when_time_is_up) {
  Run run(3, [&](ForkHub& hub, int rank, Reporter& report) -> std::string {
    Child child(hub, rank, 500);
    child->barrier();
    if (rank == 0) {
      report.say("elsewhere");
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      return expect_error(DDP_ERROR_TIMED_OUT, [&] { child->barrier(); });
    }
    return expect_error(DDP_ERROR_TIMED_OUT, [&] { child->barrier(); });
  });
  for (const auto& result : run.procs.wait()) {
    expect(result.exit_code == 0, result.describe());
    expect_contains(result.text, "rank 0 (host testhost");
    expect_contains(result.text, "did not take part in barrier #2 within 500 ms");
  }
}

ddp_case(different_sizes_are_a_mismatch_and_not_a_crash) {
  for (const int64_t smaller : {0, 10, 1000, 999'999}) {
    Run run(3, [&](ForkHub& hub, int rank, Reporter&) {
      Child child(hub, rank);
      std::vector<float> data(1'000'000);
      child->barrier();
      return expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] {
        child->all_reduce(flat_tensor(data.data(), DDP_F32, rank == 2 ? smaller : 1'000'000), DDP_SUM);
      });
    });
    for (const auto& result : run.procs.wait()) {
      expect(result.exit_code == 0, result.describe());
      expect_contains(result.text, "#2 of 1000000 F32");
      expect_contains(result.text, "#2 of " + std::to_string(smaller) + " F32");
    }
  }
}

ddp_case(a_rank_that_leaves_at_once_takes_no_result_with_it) {
  Run(3, [](ForkHub& hub, int rank, Reporter&) {
    ForkControl control(hub, rank, 20'000);
    ddp_group_options options{.timeout_ms = 20'000, .rendezvous_timeout_ms = 20'000};
    for (int i = 0; i < 10; ++i) {
      bootstrap::Failure failure;
      const auto transport = socket::make_socket_transport(collective::TransportContext{&control, &failure, options},
                                                           socket::load_module(), "127.0.0.1", socket::SocketOptions{});
      std::vector<float> data(3'000'000, static_cast<float>(rank));
      transport->all_reduce(flat_tensor(data.data(), DDP_F32, 3'000'000), DDP_AVERAGE);
      expect(data.front() == 1.0F && data.back() == 1.0F, "mean of 0, 1, 2");
      transport->shutdown();
    }
    return std::string();
  }).expect_success();
}

ddp_case(groups_come_and_go_without_leaving_descriptors) {
  Run(2, [](ForkHub& hub, int rank, Reporter&) {
    ForkControl control(hub, rank, 20'000);
    bootstrap::Failure failure;
    ddp_group_options options{.timeout_ms = 20'000, .rendezvous_timeout_ms = 20'000};
    const rlimit few{64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int i = 0; i < 40; ++i) {
      const auto transport = socket::make_socket_transport(collective::TransportContext{&control, &failure, options},
                                                           socket::load_module(), "127.0.0.1", socket::SocketOptions{});
      transport->barrier();
      transport->shutdown();
    }
    return std::string();
  }).expect_success();
}

ddp_before_cases(need_gloo());
