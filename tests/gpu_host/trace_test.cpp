// SPDX-License-Identifier: Apache-2.0
// A trace has the work of GPUs in their streams: read back as JSON, with the host's times before and after that work.
#include <nlohmann/json.hpp>

#include "group/tracing.hpp"
#include "support/check.hpp"
#include "support/training.hpp"

using Json = nlohmann::json;

constexpr int32_t kParameters = 4;
constexpr int64_t kElements = 5'000;  // each is a bucket of its own
constexpr int kPasses = 3;
constexpr double kErrorUs = 2'000;  // of the device's clock, on a busy machine: the fake's device is a thread

/// A rank's model with AdamW, whose work is enqueued.
struct Trainee : Training {
  explicit Trainee(group::Group& of, bool shard = false, bool in_backward = false)
      : Training(of, Rule::kAdamW, ways_with(shard, in_backward)) {
    fill(of.rank(), 0);
  }
  static Ways ways_with(bool shard, bool in_backward) {
    Ways ways;
    ways.shapes.assign(kParameters, kElements);
    ways.first_bucket_bytes = ways.bucket_bytes = kElements * 4;
    ways.owned_grads = false;
    ways.enqueued = true;
    ways.progress = DDP_PROGRESS_AUTO;
    ways.unused = DDP_UNUSED_ERROR;
    ways.shard = shard;
    ways.in_backward = in_backward;
    return ways;
  }
  void step() const {
    reduce();
    Training::step();
  }
};

std::string file_in(const Folder& folder) { return folder.path() + "/trace.json"; }
void start(group::Group& group, const Folder& folder) { group::start_trace(group, file_in(folder), {65'536}); }

struct Trace {
  explicit Trace(const Folder& folder) {
    std::ifstream file(file_in(folder));
    const Json all = Json::parse(file);
    for (const Json& entry : all.at("traceEvents")) {
      const std::pair row(entry.at("pid").get<int>(), entry.at("tid").get<int>());
      if (entry.at("name") == "thread_name") names[row] = entry.at("args").at("name").get<std::string>();
      if (entry.at("ph") == "X" || entry.at("ph") == "i") events.push_back(entry);
    }
  }
  /// Of a rank, with this in the name of the row and in its own.
  [[nodiscard]] std::vector<Json> of(int rank, const std::string& row, const std::string& name = "") const {
    std::vector<Json> found;
    for (const Json& event : events)
      if (event.at("pid") == rank && event.at("name").get<std::string>().find(name) != std::string::npos &&
          names.at({rank, event.at("tid").get<int>()}).find(row) != std::string::npos)
        found.push_back(event);
    return found;
  }
  std::map<std::pair<int, int>, std::string> names;
  std::vector<Json> events;
};
double begin_of(const Json& event) { return event.at("ts").get<double>(); }
double end_of(const Json& event) { return begin_of(event) + event.value("dur", 0.0); }

/// In sequence, all between the two moments. Returns how long they are together.
double expect_in_order(const std::vector<Json>& works, double from, double to) {
  double sum = 0, last = from;
  for (const Json& work : works) {
    expect(begin_of(work) >= last - 0.002, "not before what came before it: " + work.dump());
    last = end_of(work);
    sum += work.at("dur").get<double>();
  }
  expect(last <= to + 0.002, "not after the host has seen it: " + std::to_string(last) + " " + std::to_string(to));
  expect(sum <= to - from + 0.002, "no longer than that");
  return sum;
}

std::vector<Json> between(std::vector<Json> events, double from, double to) {
  std::erase_if(events, [&](const Json& event) { return begin_of(event) < from || begin_of(event) > to; });
  return events;
}

/// The trace has barriers before and after each pass and the device's work for it.
void check_rank(const Trace& trace, int rank) {
  const std::string gpu = "GPU " + std::to_string(rank);
  const std::vector<Json> barriers = trace.of(rank, "calls", "ddp_group_barrier");
  expect_equal(barriers.size(), size_t{2 * kPasses}, "barriers");
  for (size_t pass = 0; pass < kPasses; ++pass) {
    const double from = begin_of(barriers[2 * pass]) - kErrorUs, to = end_of(barriers[2 * pass + 1]) + kErrorUs;
    const std::vector<Json> works = between(trace.of(rank, gpu + " communication"), from, to);
    const double sum = expect_in_order(works, from, to);
    expect(sum > 0, "it takes time");
    std::vector<std::string> names;
    for (const Json& work : works) names.push_back(work.at("name").get<std::string>());
    std::vector<std::string> expected;
    for (int bucket = 0; bucket < kParameters; ++bucket)
      for (const char* const what : {"pack", "all-reduce", "unpack"})
        expected.push_back("bucket " + std::to_string(bucket) + " " + what);
    expect(names == expected, Json(names).dump());
    expect_equal(works[1].at("args").at("bytes").get<int64_t>() / 4 / kElements, int64_t{1}, "a parameter and its padding");
    const std::vector<Json> steps = between(trace.of(rank, gpu + " program's stream 1"), from, to);
    static_cast<void>(expect_in_order(steps, end_of(works.back()) - kErrorUs, to));
    expect(!steps.empty() && steps.back().at("name") == "optimizer", "the optimizer is last: " + Json(steps).dump());
    const std::vector<Json> marks = between(trace.of(rank, "marks"), from, to);
    expect(begin_of(works.front()) >= begin_of(marks.front()) - kErrorUs, "nothing is packed before it was marked");
  }
}

ddp_case(streams_have_rows_in_the_order_of_their_work) {
  for (const uint64_t seed : {0, 7}) {
    const FakeGpus gpus(seed);
    const Folder folder;
    run_gpu_groups(2, [&](group::Group& group, int) {
      const Trainee trainee(group);
      trainee.step();
      start(group, folder);
      for (int pass = 0; pass < kPasses; ++pass) {
        group.barrier();
        trainee.step();
        trainee.synchronize();
        group.barrier();
        std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int64_t>(3 * kErrorUs)));  // apart from the next
      }
      group::stop_trace(group);
      trainee.step();
    });
    const Trace trace(folder);
    for (int rank = 0; rank < 2; ++rank) check_rank(trace, rank);
    FakeGpus::expect_clean();
  }
}

/// The device's times are put on the host's clock: work that was held back there began when it was released.
ddp_case(times_are_those_of_the_host) {
  constexpr double kHeldUs = 40'000;
  const FakeGpus gpus;
  const Folder folder;
  run_gpu_groups(1, [&](group::Group& group, int) {
    const Trainee trainee(group);
    start(group, folder);
    group.barrier();
    fake_gpu::pause(trainee.stream());
    trainee.step();
    std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int64_t>(kHeldUs)));
    group.barrier();
    fake_gpu::resume(trainee.stream());
    trainee.synchronize();
    group.barrier();
    group::stop_trace(group);
  });
  const Trace trace(folder);
  const std::vector<Json> barriers = trace.of(0, "calls", "ddp_group_barrier"), steps = trace.of(0, "GPU 0", "optimizer");
  expect_equal(steps.size(), size_t{1}, "steps");
  expect(begin_of(barriers[1]) - end_of(barriers[0]) > kHeldUs, "it was held so long");
  expect(end_of(steps[0]) >= begin_of(barriers[1]) - kErrorUs, "it ended when it was let go");
  expect(end_of(steps[0]) <= end_of(barriers[2]) + kErrorUs, "and before the host knew it");
}

ddp_case(sharded_steps_and_steps_in_passes_have_theirs) {
  struct Case {
    bool shard, in_backward;
    std::vector<const char*> communication;
    const char* row;
  };
  for (const Case& each : {Case{true, false, {"reduce-scatter", "all-gather"}, " communication"},
                           Case{false, true, {"all-reduce"}, " updates beside it"}}) {
    const FakeGpus gpus;
    const Folder folder;
    run_gpu_groups(2, [&](group::Group& group, int) {
      const Trainee trainee(group, each.shard, each.in_backward);
      trainee.step();
      start(group, folder);
      trainee.step();
      group::stop_trace(group);
    });
    const Trace trace(folder);
    for (int rank = 0; rank < 2; ++rank) {
      const std::string gpu = "GPU " + std::to_string(rank);
      for (const char* const what : each.communication)
        expect_equal(trace.of(rank, gpu + " communication", what).size(), size_t{kParameters}, what);
      expect(!trace.of(rank, gpu + each.row, "optimizer").empty(), std::string("the optimizer in") + each.row);
    }
    FakeGpus::expect_correct();
  }
}

ddp_case(a_traced_pass_takes_no_memory_and_waits_for_nothing) {
  const FakeGpus gpus;
  const Folder folder;
  run_gpu_groups(1, [&](group::Group& group, int rank) {
    const Trainee trainee(group);
    trainee.step();
    fake_gpu::clear_log();
    trainee.step();
    const int64_t waits = fake_gpu::host_waits(), enqueued = fake_gpu::enqueued(rank);
    for (const char* const name : {"event_elapsed", "event_query", "event_create"})
      expect_equal(fake_gpu::calls(name), int64_t{0}, std::string("no trace is on: ") + name);
    start(group, folder);
    trainee.step();
    trainee.synchronize();
    fake_gpu::clear_log();
    trainee.step();
    expect(fake_gpu::enqueued(rank) > enqueued, "its times are taken");
    expect_equal(fake_gpu::host_waits(), waits, "waits");
    expect_equal(fake_gpu::allocations(), int64_t{0}, "memory");
    expect_equal(fake_gpu::calls("event_create"), int64_t{0}, "events");
    group::stop_trace(group);
    trainee.synchronize();
    fake_gpu::clear_log();
    trainee.step();
    expect_equal(fake_gpu::enqueued(rank), enqueued, "as before");
  });
  FakeGpus::expect_nothing_left();
}

/// Of another thread, whose capture forbids all threads to look at events; and of the pass itself, which is left out.
ddp_case(captures_are_not_disturbed) {
  const FakeGpus gpus;
  const Folder folder;
  run_gpu_groups(1, [&](group::Group& group, int rank) {
    const Trainee trainee(group);
    trainee.step();
    const GpuStream other(rank);
    start(group, folder);
    std::thread([&] { expect(fake_gpu::begin_capture(other.get()), "the capture begins"); }).join();
    trainee.step();
    trainee.step();
    std::string why;
    expect(fake_gpu::end_capture(other.get(), &why) != nullptr, "the capture ends well: " + why);
    trainee.synchronize();
    const fake_gpu::GraphPtr graph = capture(trainee.stream(), [&] { trainee.reduce(); });
    for (const std::string& name : fake_gpu::graph_operations(graph))
      expect(name != "event_record", "nothing of the trace is in it");
    group::stop_trace(group);
  });
  expect_equal(Trace(folder).of(0, "GPU 0", "optimizer").size(), size_t{2}, "steps that ran");
  FakeGpus::expect_correct();
}

/// Whatever the runtime refuses, training continues, and the rest is in the trace.
ddp_case(what_is_refused_is_left_out) {
  for (const char* const name : {"event_create", "event_elapsed", "event_query"}) {
    const FakeGpus gpus;
    const Folder folder;
    run_gpu_groups(1, [&](group::Group& group, int) {
      const Trainee trainee(group);
      trainee.step();
      fake_gpu::inject({.function = name, .times = 1'000'000});
      start(group, folder);
      trainee.step();
      trainee.step();
      group::stop_trace(group);
      fake_gpu::clear_faults();
    });
    const Trace trace(folder);
    expect_equal(trace.of(0, "calls", "step").size(), size_t{2}, "steps");
    expect(trace.of(0, "GPU 0").empty(), std::string("nothing of the GPU, without ") + name);
    FakeGpus::expect_nothing_left();
  }
}

/// A device that is far behind: there are no events left, and later work is left out.
ddp_case(a_late_device_costs_nothing_but_its_times) {
  const FakeGpus gpus;
  const Folder folder;
  run_gpu_groups(1, [&](group::Group& group, int) {
    const Trainee trainee(group);
    trainee.step();
    start(group, folder);
    fake_gpu::pause(trainee.stream());
    for (int i = 0; i < 1'500; ++i) trainee.step();
    fake_gpu::resume(trainee.stream());
    trainee.synchronize();
    for (int i = 0; i < 10; ++i) trainee.step();
    group::stop_trace(group);
  });
  const size_t steps = Trace(folder).of(0, "GPU 0", "optimizer").size();
  expect(steps >= 500 && steps < 1'510, "some of them: " + std::to_string(steps));
  FakeGpus::expect_nothing_left();
}

/// One trace behind the other.
ddp_case(every_trace_has_its_own) {
  const FakeGpus gpus;
  const Folder first, second;
  run_gpu_groups(2, [&](group::Group& group, int) {
    const Trainee trainee(group);
    start(group, first);
    trainee.step();
    group::stop_trace(group);
    trainee.step();
    start(group, second);
    trainee.step();
    trainee.step();
    group::stop_trace(group);
  });
  for (int rank = 0; rank < 2; ++rank) {
    expect_equal(Trace(first).of(rank, " communication", "all-reduce").size(), size_t{kParameters}, "in the first");
    expect_equal(Trace(second).of(rank, " communication", "all-reduce").size(), size_t{2 * kParameters}, "in the second");
  }
  FakeGpus::expect_nothing_left();
}
