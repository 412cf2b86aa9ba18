// SPDX-License-Identifier: Apache-2.0
// The race detector: finds what is not ordered, whatever the threads did, and stays silent where there is an order.
#include "support/fake_gpu/races.hpp"

#include "unit/fake_gpu/fixture.hpp"

using namespace ddp::test::fake_gpu;

struct Two {
  void* first = make_stream();
  void* second = make_stream();
  void* event = make_event();
  uint8_t* array = make_array<uint8_t>({1, 1, 1, 1});
  uint8_t* other = make_array<uint8_t>({1, 1, 1, 1});

  /// For races that are meant: nothing runs, so that the thread sanitizer has nothing to report.
  static Two held() {
    pause_device(0);
    return {};
  }
  void hand_over() const {
    assert_ok(api.event_record(event, first));
    assert_ok(api.stream_wait(second, event));
  }
};

fake_gpu_case(a_planted_race_is_found_and_named) {
  const Two t = Two::held();
  assert_ok(api.fill(t.array, 2, 4, t.first));
  assert_ok(api.fill(t.array + 3, 3, 1, t.second));
  const std::vector<std::string> all = violations();
  expect_equal(all.size(), size_t{1}, "violations");
  expect_equal(
      all[0],
      std::string(
          "race: fill #2 (stream 2 of device 0) writes bytes that fill #1 (stream 1 of device 0) writes, and nothing "
          "orders the two"),
      "text");
  clear_violations();
}

fake_gpu_case(it_is_found_also_when_the_first_was_over_long_ago) {
  const Two t;
  assert_ok(api.fill(t.array, 2, 4, t.first));
  check(wait_idle());  // the test knows, the program does not
  assert_ok(api.copy(t.other, t.array, 4, t.second));
  assert_violation("reads bytes that fill #1");
}

fake_gpu_case(reading_before_a_write_is_found) {
  const Two t = Two::held();
  assert_ok(api.copy(t.other, t.array, 4, t.first));
  assert_ok(api.fill(t.array, 2, 4, t.second));
  assert_violation("writes bytes that copy #1 (stream 1 of device 0) reads");
}

fake_gpu_case(two_readers_are_no_race) {
  const Two t;
  uint8_t* const third = make_array<uint8_t>({1, 1, 1, 1});
  assert_ok(api.copy(t.other, t.array, 4, t.first));
  assert_ok(api.copy(third, t.array, 4, t.second));
}

fake_gpu_case(neighbours_are_no_race) {
  const Two t;
  assert_ok(api.fill(t.array, 2, 2, t.first));
  assert_ok(api.fill(t.array + 2, 2, 2, t.second));
}

fake_gpu_case(an_event_gives_an_order) {
  const Two t;
  assert_ok(api.fill(t.array, 2, 4, t.first));
  t.hand_over();
  assert_ok(api.fill(t.array, 3, 4, t.second));
}

fake_gpu_case(an_event_recorded_too_early_gives_none) {
  const Two t = Two::held();
  t.hand_over();
  assert_ok(api.fill(t.array, 2, 4, t.first));
  assert_ok(api.fill(t.array, 3, 4, t.second));
  assert_violation("race: fill #2");
}

fake_gpu_case(an_order_goes_through_a_third_stream) {
  const Two t;
  void *const third = make_stream(), *const event = make_event();
  assert_ok(api.fill(t.array, 2, 4, t.first));
  t.hand_over();
  assert_ok(api.event_record(event, t.second));
  assert_ok(api.stream_wait(third, event));
  assert_ok(api.fill(t.array, 3, 4, third));
}

fake_gpu_case(waiting_on_the_host_gives_an_order) {
  const Two t;
  assert_ok(api.fill(t.array, 2, 4, t.first));
  assert_ok(api.stream_synchronize(t.first));
  assert_ok(api.fill(t.array, 3, 4, t.second));
  assert_ok(api.event_record(t.event, t.second));
  assert_ok(api.event_synchronize(t.event));
  assert_ok(api.fill(t.array, 4, 4, t.first));
  assert_ok(api.synchronize());
  assert_ok(api.fill(t.array, 5, 4, t.second));
}

fake_gpu_case(asking_whether_it_is_done_gives_an_order_but_not_to_the_watchdog) {
  const Two t;
  int32_t done = 0;
  assert_ok(api.fill(t.array, 2, 4, t.first));
  assert_ok(api.event_record(t.event, t.first));
  later([&] {
    assert_ok(api.relax_capture());
    for (int32_t seen = 0; seen == 0;) assert_ok(api.event_query(t.event, &seen));
  }).get();
  assert_ok(api.fill(t.array, 3, 4, t.second));
  assert_violation("race");
  assert_ok(api.event_record(t.event, t.second));
  while (done == 0) assert_ok(api.event_query(t.event, &done));
  later([&] { assert_ok(api.fill(t.array, 4, 4, t.first)); }).get();  // also by another thread
}

fake_gpu_case(freed_memory_has_no_past) {
  reset(Options{.devices = 1, .device_bytes = 4096});
  void *const first = make_stream(), *const second = make_stream();
  for (int i = 0; i < 20; ++i) {  // addresses come again
    void* memory = nullptr;
    assert_ok(api.alloc(&memory, 1000));
    assert_ok(api.fill(memory, 0, 1000, i % 2 == 0 ? first : second));
    assert_ok(api.free(memory));
  }
}

fake_gpu_case(pinned_memory_is_watched_by_both_of_its_addresses) {
  const Two t = Two::held();
  void *host = nullptr, *device = nullptr;
  assert_ok(api.host_alloc(&host, &device, 64));
  assert_ok(api.copy(host, t.array, 4, t.first));
  assert_ok(api.copy(t.other, device, 4, t.second));
  assert_violation("reads bytes that copy #1");
}

fake_gpu_case(a_communicators_operation_races_like_any_other) {
  char id[DDP_NCCL_ID_BYTES];
  check_equal(nccl().get_unique_id(id), 0);
  void* comm = nullptr;
  check_equal(nccl().comm_init(&comm, 1, id, 0, "", 0), 0);
  const Two t = Two::held();
  assert_ok(api.fill(t.array, 2, 4, t.first));
  check_equal(nccl().all_reduce(t.array, t.array, 4, DDP_U8, DDP_GPU_SUM, comm, t.second), 0);
  assert_violation("race: nccl.all_reduce");
}

/// The definition: every pair of operations is compared.
struct Naive {
  struct Past {
    size_t actor;
    uint64_t time;
    Access access;
  };
  std::vector<Past> past;
  bool touch(const Access& access, size_t actor, const Clock& clock) {
    bool found = false;
    for (const Past& p : past) {
      const bool overlap = p.access.begin < access.begin + static_cast<uintptr_t>(access.bytes) &&
                           access.begin < p.access.begin + static_cast<uintptr_t>(p.access.bytes);
      found = found || (overlap && (p.access.writes || access.writes) && p.actor != actor && p.time > clock.at(p.actor));
    }
    past.push_back({actor, clock.at(actor), access});
    return found;
  }
};

/// The detector remembers only the last write of a byte: a race may hide an earlier one. So histories are compared up to the
/// first.
fake_gpu_case(random_histories_are_judged_as_by_comparing_all_pairs) {
  int races = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    std::mt19937_64 random(seed);
    Races detector;
    Naive naive;
    std::vector<Clock> clocks(3);
    bool over = false;
    for (int step = 0; step < 40 && !over; ++step) {
      const size_t actor = random() % 3;
      for (size_t other = 0; other < 3; ++other)  // events, recorded now
        if (random() % 12 != 0) clocks[actor].join(clocks[other]);
      clocks[actor].tick(actor);
      const Access access{100 + random() % 48, static_cast<int64_t>(1 + random() % 8), random() % 2 == 0};
      const bool wanted = naive.touch(access, actor, clocks[actor]);
      const bool got = !detector.touch({access}, actor, clocks[actor], "x").empty();
      expect_equal(got, wanted, "seed " + std::to_string(seed) + ", step " + std::to_string(step));
      over = wanted;
    }
    races += over ? 1 : 0;
  }
  expect(races > 50 && races < 350, std::to_string(races) + " of 400 histories have a race");
}
