// SPDX-License-Identifier: Apache-2.0
// The control plane between processes: it carries messages, and names the rank that has left, is silent or missing, or is a
// stranger.

#include "support/check.hpp"
#include "support/meeting.hpp"
#include "support/procs.hpp"

std::string gather_round(bootstrap::Control& control, const std::string& what) {
  std::string all;
  for (const std::string& part : control.gather(what, what + std::to_string(control.rank()), os::Deadline::in_ms(20'000)))
    all += part + " ";
  return all;
}

void expect_all_ok(const std::vector<ProcResult>& results) {
  for (size_t rank = 0; rank < results.size(); ++rank)
    expect(results[rank].exit_code == 0, "rank " + std::to_string(rank) + " succeeds: " + results[rank].describe());
}

ddp_case(ranks_of_any_number_gather) {
  for (const int size : {1, 2, 3, 5, 8}) {
    const int port = free_port();
    Procs procs(size, [&](int rank, Reporter&) {
      const auto control = meet_at(tcp_place(port), rank, size);
      std::string all;
      for (int i = 0; i < 20; ++i) all = gather_round(*control, "round " + std::to_string(i) + ":");
      control->leave();
      return all + control->member(rank).address;
    });
    std::string wanted;
    for (int rank = 0; rank < size; ++rank) wanted += "round 19:" + std::to_string(rank) + " ";
    const auto results = procs.wait();
    expect_all_ok(results);
    for (const auto& result : results) expect_equal(result.text, wanted + "127.0.0.1", "result");
  }
}

ddp_case(large_contributions_arrive_whole) {
  const int port = free_port();
  Procs procs(3, [&](int rank, Reporter&) {
    const auto control = meet_at(tcp_place(port), rank, 3);
    const std::string mine(size_t{8} << 20, static_cast<char>('a' + rank));
    const auto all = control->gather("large", mine, os::Deadline::in_ms(20'000));
    for (int r = 0; r < 3; ++r)
      expect(all[static_cast<size_t>(r)] == std::string(size_t{8} << 20, static_cast<char>('a' + r)),
             "the bytes are the same");
    expect_error(DDP_ERROR_INVALID_ARGUMENT,
                 [&] { (void)control->gather("larger", mine + "x", os::Deadline::in_ms(20'000)); });
    control->leave();
    return std::string("ok");
  });
  expect_all_ok(procs.wait());
}

// A rank is killed; the others wait in a gather and have a failure callback.
void a_killed_rank_is_named(int victim, const std::string& part) {
  const int port = free_port();
  Procs procs(4, [&](int rank, Reporter& report) {
    const auto control = meet_at(tcp_place(port), rank, 4);
    (void)gather_round(*control, "start");
    report.say("ready");
    if (rank == victim) pause();
    (void)gather_round(*control, "never");
    return std::string("no error");
  });
  for (int rank = 0; rank < 4; ++rank) procs.wait_for(rank, "ready");
  const double before = seconds_now();
  procs.signal(victim, SIGKILL);
  std::string first;
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == victim) continue;
    const ProcResult& result = procs.wait_one(rank);
    expect_contains(result.text, "DDP_ERROR_PEER_FAILED");
    expect_contains(result.text, "rank " + std::to_string(victim) + " (host ");
    expect_contains(result.text, "pid " + std::to_string(procs.pid(victim)));
    expect_contains(result.text, part);
    if (first.empty()) first = result.text;
    expect_equal(result.text, first, "the text of every rank");
  }
  expect(seconds_now() - before < 1.0, "all know within a second");
}

ddp_case(a_killed_rank_is_named_within_a_second) {
  a_killed_rank_is_named(2, "is gone: its connection closed without a goodbye");
}
ddp_case(the_death_of_rank_0_is_seen_by_all) {
  a_killed_rank_is_named(0, "is gone: its connection closed without a goodbye");
}

void a_stopped_rank_is_named(int victim) {
  const int port = free_port();
  Procs procs(3, [&](int rank, Reporter& report) {
    ddp_group_options options = quick_options(rank, 3);
    options.heartbeat_ms = 50;
    options.dead_after_ms = 1'500;
    const auto control = meet_at(tcp_place(port), options);
    control->set_progress(17, 2);
    (void)gather_round(*control, "start");
    FailureWatch watch(*control);
    report.say("ready");
    watch.wait();
    return std::string("no error");
  });
  for (int rank = 0; rank < 3; ++rank) procs.wait_for(rank, "ready");
  const double before = seconds_now();
  procs.signal(victim, SIGSTOP);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == victim) continue;
    const ProcResult& result = procs.wait_one(rank);
    expect_contains(result.text, "DDP_ERROR_PEER_FAILED: rank " + std::to_string(victim) + " (host ");
    expect_contains(result.text, "was silent for more than 1.5 s");
  }
  const double took = seconds_now() - before;
  expect(took > 1.2 && took < 5, "it took " + std::to_string(took) + " s");
  procs.signal(victim, SIGCONT);
  expect_contains(procs.wait_one(victim).text, "rank " + std::to_string(victim) + " (host ");
}

ddp_case(a_stopped_rank_is_named_after_the_silence) { a_stopped_rank_is_named(1); }
ddp_case(a_stopped_rank_0_is_named_after_the_silence) { a_stopped_rank_is_named(0); }

ddp_case(leaving_is_told_and_is_no_death) {
  const int port = free_port();
  Procs procs(3, [&](int rank, Reporter&) {
    const auto control = meet_at(tcp_place(port), rank, 3);
    FailureWatch watch(*control);
    (void)gather_round(*control, "start");
    const double before = seconds_now();
    if (rank == 1) {
      control->leave();
      expect(seconds_now() - before < 1.5, "leaving is quick");
      return std::string("left");
    }
    watch.wait();
    return std::string("no error");
  });
  for (const int rank : {0, 2}) {
    expect_contains(procs.wait_one(rank).text, "DDP_ERROR_ABORTED: rank 1 (host ");
    expect_contains(procs.wait_one(rank).text, "left the group");
  }
  expect_equal(procs.wait_one(1).text, std::string("left"), "text");
}

ddp_case(ranks_that_leave_after_the_last_gather_spoil_nothing) {
  for (int turn = 0; turn < 20; ++turn) {
    const int port = free_port();
    Procs procs(4, [&](int rank, Reporter&) {
      const auto control = meet_at(tcp_place(port), rank, 4);
      for (int i = 0; i < 10; ++i) (void)gather_round(*control, "round");
      const double before = seconds_now();
      control->leave();
      expect(seconds_now() - before < 2, "leaving is quick");
      return std::string("ok");
    });
    expect_all_ok(procs.wait());
  }
}

ddp_case(an_abort_reaches_all_with_one_text) {
  const int port = free_port();
  Procs procs(4, [&](int rank, Reporter& report) {
    const auto control = meet_at(tcp_place(port), rank, 4);
    (void)gather_round(*control, "start");
    if (rank == 3) {
      control->abort(Error(DDP_ERROR_ABORTED, "the loss is not finite"));
      report.say("aborted");
      expect_error(DDP_ERROR_ABORTED, [&] { (void)gather_round(*control, "after"); }, {"the loss is not finite"});
      control->leave();
      return std::string("ok");
    }
    (void)gather_round(*control, "never");
    return std::string("no error");
  });
  procs.wait_for(3, "aborted");
  const double before = seconds_now();
  for (int rank = 0; rank < 3; ++rank)
    expect_equal(procs.wait_one(rank).text, std::string("DDP_ERROR_ABORTED: the loss is not finite"), "text");
  expect(seconds_now() - before < 1.0, "all know within a second");
  expect_equal(procs.wait_one(3).text, std::string("ok"), "text");
}

ddp_case(a_death_is_a_better_cause_than_what_it_did_to_others) {
  const int port = free_port();
  Procs procs(3, [&](int rank, Reporter& report) {
    const auto control = meet_at(tcp_place(port), rank, 3);
    FailureWatch watch(*control);
    (void)gather_round(*control, "start");
    report.say("ready");
    if (rank == 2) pause();
    if (rank == 1) control->abort(Error(DDP_ERROR_PEER_FAILED, "connection reset"));
    report.say("told");
    watch.wait();
    return std::string("ok");
  });
  procs.wait_for(2, "ready");
  procs.wait_for(1, "told");
  procs.signal(2, SIGKILL);
  expect_contains(procs.wait_one(0).text, "rank 2 (host ");
}

ddp_case(different_calls_are_named_on_all_ranks) {
  const int port = free_port();
  Procs procs(3, [&](int rank, Reporter&) {
    const auto control = meet_at(tcp_place(port), rank, 3);
    const std::string text =
        expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] { (void)gather_round(*control, rank == 1 ? "beta" : "alpha"); });
    expect_contains(text, "\"alpha\"");
    expect_contains(text, "\"beta\"");
    (void)gather_round(*control, "and on");
    control->leave();
    return std::string("ok");
  });
  expect_all_ok(procs.wait());
}

ddp_case(a_rank_that_does_not_join_a_gather_is_named) {
  const int port = free_port();
  Procs procs(3, [&](int rank, Reporter& report) {
    const auto control = meet_at(tcp_place(port), rank, 3);
    if (rank == 1) {
      FailureWatch watch(*control);
      control->set_progress(4, 1);
      watch.wait();
    }
    report.say("waits");
    (void)control->gather("plan", "", os::Deadline::in_ms(1'000));
    return std::string("no error");
  });
  for (int rank = 0; rank < 3; ++rank) {
    const ProcResult& result = procs.wait_one(rank);
    expect_contains(result.text, "DDP_ERROR_TIMED_OUT: rank 1 (host ");
    expect_contains(result.text, "did not join \"plan\" within 1 s");
  }
}

ddp_case(a_group_can_be_made_again_after_a_failure) {
  const int port = free_port();
  Procs procs(3, [&](int rank, Reporter&) {
    for (int turn = 0; turn < 3; ++turn) {
      const auto control = meet_at(tcp_place(port), rank, 3);
      (void)gather_round(*control, "start");
      if (rank == turn) control->abort(Error(DDP_ERROR_ABORTED, "again"));
      expect_error(DDP_ERROR_ABORTED, [&] {
        (void)gather_round(*control, "one");
        (void)gather_round(*control, "two");
      });
      control->leave();
    }
    const auto control = meet_at(tcp_place(port), rank, 3);
    const std::string all = gather_round(*control, "");
    control->leave();
    return all;
  });
  const auto results = procs.wait();
  expect_all_ok(results);
  for (const auto& result : results) expect_equal(result.text, std::string("0 1 2 "), "result");
}
