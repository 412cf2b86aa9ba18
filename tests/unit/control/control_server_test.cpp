// SPDX-License-Identifier: Apache-2.0
// Rank 0's state machine together with the ranks' machines, without sockets (support/control_world.hpp).

#include "core/random.hpp"
#include "support/check.hpp"
#include "support/control_world.hpp"

ddp_case(a_group_forms_and_gathers) {
  ControlWorld world(3);
  formed(world);
  for (size_t i : {2, 0, 1}) world.gather(i, "w", std::string(1, static_cast<char>('a' + i)));
  world.run();
  for (size_t i = 0; i < 3; ++i) {
    expect_equal(world[i].answers.size(), size_t{1}, "answers");
    expect(world[i].answers[0] == std::vector<std::string>({"a", "b", "c"}), "in rank order");
  }
}

ddp_case(offenders_are_refused_and_the_others_wait) {
  ControlWorld world(0, 3);
  world.add(0, 3);
  world.add(1, 3);
  world.add(1, 3);
  world.add(2, 4);
  for (size_t i = 0; i < 4; ++i) {
    world.connect(i);
    world.run();
  }
  expect(world[2].refused.has_value() && world[2].refused->status() == DDP_ERROR_INVALID_ARGUMENT, "a duplicate is refused");
  expect_contains(world[2].refused->text(), "rank 1 (host h1, pid 101)");
  expect(world[3].refused.has_value() && world[3].refused->status() == DDP_ERROR_MISMATCH, "another size is refused");
  expect_contains(world[3].refused->text(), "4");
  expect_contains(world[3].refused->text(), "3");
  world.add(2, 3);
  world.connect(4);
  world.run();
  expect(world[0].joined && world[1].joined && world[4].joined, "the right ones form the group");
}

ddp_case(those_who_did_not_come_are_named) {
  ControlWorld world(0, 4);
  world.add(0, 4, 700);
  world.add(2, 4);
  world.connect(0);
  world.connect(1);
  for (int i = 0; i < 8; ++i) {
    world.run();
    world.tick(100);
  }
  world.run();
  for (size_t i = 0; i < 2; ++i) {
    expect(world[i].refused.has_value() && world[i].refused->status() == DDP_ERROR_TIMED_OUT, "all wait in vain");
    expect_contains(world[i].refused->text(), "ranks 1 and 3 of 4");
  }
}

ddp_case(who_came_and_gave_up_is_no_rank_that_never_came) {
  ControlWorld world(0, 3);
  world.add(0, 3, 700);
  world.add(1, 3, 300);
  world.connect(0);
  world.connect(1);
  for (int i = 0; i < 8; ++i) {
    world.run();
    world.tick(100);
  }
  world.run();
  expect_equal(world[1].refused->text(), std::string("rank 2 of 3 did not come within 0.3 s"), "rank 1");
  expect_contains(world[0].refused->text(),
                  "rank 2 of 3 did not come within 0.7 s; rank 1 of 3 came but ended or gave up before all were there");
  expect_contains(world[0].refused->text(), "raise rendezvous_timeout_ms");
}

ddp_case(a_rank_that_dies_before_the_group_forms_may_come_again) {
  ControlWorld world(2);
  world.connect(0);
  world.connect(1);
  world.kill(1);
  world.run();
  expect(!world[0].joined, "one is missing");
  world.add(1, 2);
  world.connect(2);
  world.run();
  expect(world[0].joined && world[2].joined, "the second try counts");
}

// The end of a process is noticed by its connection: no rank waits for the end of the rendezvous.
ddp_case(a_rank_that_dies_before_the_group_forms_is_named_at_once) {
  ControlWorld world(0, 4);
  for (const int32_t rank : {0, 1, 2}) {
    world.add(rank, 4, 120'000);
    world.connect(static_cast<size_t>(rank));
  }
  world.run();
  world.kill(1);
  for (int i = 0; i < 4; ++i) world.tick(100);
  world.run();
  expect(!world[0].refused.has_value() && !world[2].refused.has_value(), "it may come again for a moment");
  for (int i = 0; i < 3; ++i) world.tick(100);
  world.run();
  for (const size_t other : {size_t{0}, size_t{2}}) {
    expect(world[other].refused.has_value() && world[other].refused->status() == DDP_ERROR_PEER_FAILED, "refused");
    expect_contains(world[other].refused->text(), "rank 1 (host h1, pid 101) is gone");
  }
  world.add(3, 4, 120'000);
  world.connect(3);
  world.run();
  expect(world[3].refused.has_value() && world[3].refused->status() == DDP_ERROR_PEER_FAILED,
         "who comes later hears it too");
}

ddp_case(a_rank_that_is_silent_before_the_group_forms_is_named) {
  ControlWorld world(0, 3);
  for (const int32_t rank : {0, 1}) {
    world.add(rank, 3, 120'000);
    world.connect(static_cast<size_t>(rank));
  }
  world.run();
  world.stop(1);
  for (int i = 0; i < 16; ++i) {
    world.tick(100, false);
    world[0].state.tick(world.now, {-1, 0});
    for (auto& action : world[0].state.take())
      if (action.kind == bootstrap::ClientAction::Kind::kSend) world[0].to_server.push_back({action.type, action.body});
    world.run();
  }
  expect(world[0].refused.has_value() && world[0].refused->status() == DDP_ERROR_PEER_FAILED, "refused");
  expect_contains(world[0].refused->text(), "rank 1 (host h1, pid 101) was silent for more than 1 s");
}

ddp_case(silence_is_death) {
  ControlWorld world(3);
  formed(world);
  world.stop(1);
  for (int i = 0; i < 16; ++i) {
    world.tick(100, false);
    for (const size_t r : {size_t{0}, size_t{2}}) {
      world[r].state.tick(world.now, {3, 1});
      for (auto& action : world[r].state.take())
        if (action.kind == bootstrap::ClientAction::Kind::kSend) world[r].to_server.push_back({action.type, action.body});
    }
    world.run();
  }
  for (const size_t r : {size_t{0}, size_t{2}}) {
    expect(world[r].failed.has_value() && world[r].failed->status() == DDP_ERROR_PEER_FAILED, "the others know");
    expect_contains(world[r].failed->text(), "rank 1 (host h1, pid 101) was silent for more than 1 s");
  }
}

// Rank 0's process was stopped for longer than every limit: messages that the others sent meanwhile are read after the first
// tick.
ddp_case(who_stood_still_blames_nobody) {
  ControlWorld world(3);
  formed(world);
  world.gather(0, "plan", "0", 2'000);
  world.gather(1, "plan", "1", 2'000);
  world.run();
  world.tick(100);
  world.gather(2, "plan", "2", 2'000);  // sent, not delivered
  world.tick(60'000, false);
  for (int i = 0; i < 9; ++i) world.tick(100, false);
  expect(world[0].to_client.empty() || world[0].to_client.back().type != bootstrap::FrameType::kFailed,
         "nobody is blamed for one full period");
  world.run();
  for (size_t i = 0; i < 3; ++i) {
    expect(!world[i].failed.has_value(), "nobody is blamed");
    expect_equal(world[i].answers.size(), size_t{1}, "answers");
  }
}

ddp_case(a_starved_rank_0_counts_only_what_it_saw) {
  ControlWorld world(2);
  formed(world);
  for (int i = 0; i < 6; ++i) world.tick(450, false);
  world.run();
  expect(!world[0].failed.has_value() && !world[1].failed.has_value(), "2.7 s, of which it saw 0.8");
}

ddp_case(a_meeting_does_not_end_while_rank_0_stands_still) {
  ControlWorld world(0, 2);
  world.add(0, 2, 700);
  world.add(1, 2, 700);
  world.connect(0);
  world.run();
  world.tick(60'000, false);
  world.connect(1);
  world.run();
  expect(world[0].joined && world[1].joined, "the group forms");
}

ddp_case(a_consequence_gives_way_to_its_cause) {
  ControlWorld world(3);
  formed(world);
  world.abort(1, Error(DDP_ERROR_PEER_FAILED, "connection reset"));
  world.run();
  world.tick(100);
  world.kill(2);
  world.run();
  expect_contains(world[0].failed->text(), "rank 2 (host h2, pid 102) is gone");
}

ddp_case(rank_0_hears_when_all_others_have) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    uint64_t draw = 0;
    const auto random = [&](uint64_t below) { return philox_u64(seed, 1, draw++) % below; };
    const size_t size = 2 + random(6), victim = 1 + random(size - 1);
    ControlWorld world(static_cast<int32_t>(size));
    formed(world);
    const uint64_t how = random(4);
    if (how == 0) world.kill(victim);
    if (how == 1) world.leave(victim);
    if (how == 2) world.abort(victim, Error(DDP_ERROR_ABORTED, "by the program"));
    if (how == 3) world.see_death(size - 1 == victim ? 0 : size - 1, static_cast<int32_t>(victim));
    for (int i = 0; i < 10'000 && !world[0].failed.has_value(); ++i) {
      world.deliver(random(size), random(2) == 0);
      if (!world[0].failed.has_value()) continue;
      for (size_t r = 1; r < size; ++r)
        expect(r == victim || world[r].failed.has_value(),
               "seed " + std::to_string(seed) + ": rank 0 heard before rank " + std::to_string(r));
    }
    expect(world[0].failed.has_value(), "rank 0 hears without a tick of the clock, seed " + std::to_string(seed));
  }
}

ddp_case(rank_0_hears_in_time_though_another_is_stopped) {
  ControlWorld world(3);
  formed(world);
  world.stop(1);
  world.kill(2);
  world.run();
  expect(!world[0].failed.has_value(), "rank 1 has not heard");
  for (int ms = 0; ms <= 300; ms += 50) world.tick(50), world.run();
  expect_contains(world[0].failed->text(), "rank 2 (host h2, pid 102) is gone");
}

ddp_case(the_cause_of_all_reaches_who_had_one_of_its_own) {
  ControlWorld world(3);
  formed(world);
  world.abort(1, Error(DDP_ERROR_PEER_FAILED, "connection reset"));
  world.run();
  world.kill(2);
  world.run();
  expect_contains(world[1].settled->text(), "rank 2 (host h2, pid 102) is gone");
}

ddp_case(a_death_that_a_rank_saw_counts_at_once) {
  ControlWorld world(3);
  formed(world);
  world.see_death(1, 2);
  world.run();
  for (const size_t r : {size_t{0}, size_t{1}})
    expect_contains(world[r].failed->text(), "rank 2 (host h2, pid 102) is gone");
  ControlWorld other(3);
  formed(other);
  other.leave(2);
  while (other.deliver(2, true)) {  // the rank that left waited until rank 0 knew
  }
  other.see_death(1, 2);
  other.run();
  for (const size_t r : {size_t{0}, size_t{1}}) expect_contains(other[r].failed->text(), "left the group");
}

ddp_case(a_report_without_a_better_cause_holds) {
  ControlWorld world(3);
  formed(world);
  world.abort(1, Error(DDP_ERROR_PEER_FAILED, "connection reset"));
  world.leave(1);
  world.run();
  for (int i = 0; i < 3; ++i) world.tick(100);
  world.run();
  expect_equal(world[0].failed->text(), std::string("connection reset"), "text");
  expect_equal(world[2].failed->text(), std::string("connection reset"), "text");
}

ddp_case(strangers_change_nothing) {
  ControlWorld world(2);
  world.connect(0);
  for (bootstrap::ConnectionId id = kSpread + 100; id < kSpread + 400; ++id) {
    world.stranger(id, static_cast<bootstrap::FrameType>(1 + id % bootstrap::kLastFrameType), std::string(id % 200, 'x'));
    bootstrap::messages::Hello hello;  // right in form, wrong in proof
    world.stranger(1'000 + id, bootstrap::FrameType::kHello, bootstrap::messages::write(hello));
  }
  size_t honest = 1;  // one of a flood goes by chance, and comes again
  for (world.connect(1), world.run(); !world[honest].joined && honest < 10; world.run())
    world.add(1, 2), world.connect(++honest);
  expect(world[0].joined && world[honest].joined, "the group forms");
}

// Random events on random connections: whatever happens, answers are complete and equal, and there is at most one cause, the
// same on all ranks that did not make it.
ddp_case(ranks_that_wait_for_each_other_learn_both_calls) {
  ControlWorld world(3);
  for (size_t i = 0; i < 3; ++i) world.connect(i);
  world.run();
  const bootstrap::BlockedCall in_barrier{
      bootstrap::UserCall::kBarrier, bootstrap::BlockedCall::Exchange::kCollective, 5, {5}, 3, 0};
  const bootstrap::BlockedCall in_save{bootstrap::UserCall::kSave, bootstrap::BlockedCall::Exchange::kGather, 4, {4}, 4, 0};
  world.blocked(0, in_barrier);
  world.blocked(1, in_save);
  world.blocked(2, in_barrier);
  world.blocked(2, std::nullopt);
  world.run();
  world.tick(50);
  world.run();
  for (size_t i = 0; i < 3; ++i) expect(!world[i].failed.has_value(), "rank 2 may still come");
  world.blocked(2, in_barrier);
  world.run();
  world.tick(50);
  world.run();
  for (size_t i = 0; i < 3; ++i) {
    expect(world[i].failed.has_value() && world[i].failed->status() == DDP_ERROR_DIFFERENT_CALLS,
           "DIFFERENT_CALLS on rank " + std::to_string(i));
    expect_contains(
        world[i].failed->text(),
        "rank 0 (host h0, pid 100) waits in ddp_group_barrier; rank 1 (host h1, pid 101) waits in ddp_state_save;");
  }
}

ddp_case(any_order_of_events_leaves_one_story) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const std::string name = "seed " + std::to_string(seed);
    uint64_t draw = 0;
    const auto random = [&](uint64_t below) { return philox_u64(seed, 1, draw++) % below; };
    const auto size = static_cast<int32_t>(1 + random(5));
    ControlWorld world(size);
    formed(world);
    std::vector<int> asked(static_cast<size_t>(size), 0);
    std::vector<bool> out(static_cast<size_t>(size), false);
    for (int event = 0; event < 200; ++event) {
      const size_t i = random(static_cast<uint64_t>(size));
      const uint64_t kind = random(100);
      if (kind < 70)
        world.deliver(i, random(2) == 0);
      else if (kind < 90 && !out[i] && asked[i] == static_cast<int>(world[i].answers.size()))
        world.gather(i, "g", std::to_string(i) + ":" + std::to_string(asked[i]++));
      else if (kind < 97)
        world.tick(10);
      else if (seed % 2 == 0 && !out[i]) {
        out[i] = true;
        if (kind == 97)
          world.kill(i);
        else if (kind == 98)
          world.leave(i);
        else
          world.abort(i, Error(DDP_ERROR_ABORTED, "by " + std::to_string(i)));
      }
    }
    world.run();
    for (int i = 0; i < 30; ++i) world.tick(10), world.run();
    std::string cause;
    for (size_t i = 0; i < world.count(); ++i) {
      for (size_t round = 0; round < world[i].answers.size(); ++round)
        for (int32_t r = 0; r < size; ++r)
          expect_equal(world[i].answers[round][static_cast<size_t>(r)], std::to_string(r) + ":" + std::to_string(round),
                       name);
      expect(world[i].wrong.empty(), name + ": nobody is told of a mismatch");
      if (out[i] || !world[i].failed.has_value()) continue;
      if (cause.empty()) cause = world[i].failed->text();
      expect_equal(world[i].failed->text(), cause, name);
    }
    const bool broken = std::find(out.begin(), out.end(), true) != out.end();
    for (size_t i = 0; i < world.count(); ++i)
      if (!out[i]) expect(world[i].failed.has_value() == broken, name + ": a broken group is known to all, and no other is");
  }
}
