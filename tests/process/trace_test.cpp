// SPDX-License-Identifier: Apache-2.0
// Traces as a program asks for them, read back by a JSON reader that shares no code with the writer, and compared with the
// numbers of the API.

#include "process/trace_reader.hpp"
#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/public_api.hpp"

constexpr int kParameters = 4;
constexpr int64_t kElements = 32 * 1024;  // each is a bucket of its own

struct Training : NotCopied {
  Training(const Folder& folder, int rank, int size, int recoverable = 0) : place(folder.path()) {
    ddp_group_options options = patient_options(rank, size);
    options.recoverable = recoverable;
    group = create_group("file://" + place + "/meet", options);
  }
  ~Training() { ddp_group_destroy(group); }
  ddp_model* model_on(ddp_group* on, const std::string& prefix = "param") {
    ddp_model* made = nullptr;
    auto options = defaults<ddp_model_options>();
    options.first_bucket_bytes = options.bucket_bytes = kElements * 4;
    options.progress = DDP_PROGRESS_CALLER;
    OK(ddp_model_create(on, &options, &made));
    for (int i = 0; i < kParameters; ++i) {
      values.emplace_back(kElements, 0.0F), gradients.emplace_back(kElements, 1.0F);
      const std::string name = prefix + std::to_string(i);
      OK(ddp_model_add_array(made, name.c_str(), values.back().data(), gradients.back().data(), kElements, nullptr));
    }
    OK(ddp_model_commit(made, nullptr));
    return made;
  }
  static void pass(ddp_model* on, int marks = kParameters) {
    OK(ddp_model_begin_backward(on, DDP_PASS_REDUCE));
    for (int i = marks - 1; i >= 0; --i) OK(ddp_model_mark_ready(on, i, nullptr));
    const ddp_status status = ddp_model_end_backward(on, nullptr);
    expect(status == (marks == kParameters ? DDP_OK : DDP_ERROR_INVALID_STATE), ddp_last_error());
  }
  void start(int64_t capacity = 0) {
    auto options = defaults<ddp_trace_options>();
    if (capacity != 0) options.capacity = capacity;
    OK(ddp_group_start_trace(group, ddp_group_get_rank(group) == 0 ? trace().c_str() : nullptr, &options));
  }
  [[nodiscard]] std::string trace() const { return place + "/trace.json"; }

  std::string place;
  std::deque<std::vector<float>> values, gradients;
  ddp_group* group = nullptr;
};

void expect_done(Procs& procs) { expect_success(procs); }

constexpr int kPasses = 5;

/// One pass of a rank: its buckets are those of the plan, in order, and as long together as the time for which the pass
/// communicated. Returns by how much longer that was, in microseconds.
double check_pass(const Trace& trace, int rank, const Json& pass, int64_t comm_ns) {
  const auto inside = [&](const std::string& part) {
    std::vector<Json> found = trace.of(rank, part);
    std::erase_if(found, [&](const Json& each) { return begin_of(each) < begin_of(pass) || end_of(each) > end_of(pass); });
    return found;
  };
  const std::vector<Json> waiting = inside(" waiting"), reducing = inside(" reducing");
  expect_equal(inside("param").size(), size_t{kParameters}, "marks");
  expect_equal(waiting.size(), size_t{kParameters}, "buckets that wait");
  expect_equal(reducing.size(), size_t{kParameters}, "buckets that are reduced");
  double last = 0;
  for (size_t bucket = 0; bucket < reducing.size(); ++bucket) {
    const std::string name = "bucket " + std::to_string(bucket);
    expect_equal(waiting[bucket].at("name").get<std::string>(), name + " waiting", "in plan order");
    expect_equal(reducing[bucket].at("name").get<std::string>(), name + " reducing", "in plan order");
    expect_equal(reducing[bucket].at("args").at("bytes").get<int64_t>(), kElements * 4, "bytes");
    expect(std::abs(end_of(waiting[bucket]) - begin_of(reducing[bucket])) < 0.002, "it waits until it starts");
    last = std::max(last, end_of(reducing[bucket]));
  }
  const double rest_us = static_cast<double>(comm_ns) * 1e-3 - (last - begin_of(reducing.front()));
  expect(rest_us > -0.01, "buckets longer than the communication of the pass: " + std::to_string(rest_us) + " us");
  return rest_us;
}

ddp_case(sums_and_order_are_those_of_the_passes) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter& report) {
    Training training(folder, rank, 2);
    ddp_model* const model = training.model_on(training.group);
    ddp_optimizer* sgd = nullptr;
    OK(ddp_optimizer_create_sgd(model, nullptr, nullptr, &sgd));
    training.start();
    for (int pass = 0; pass < kPasses; ++pass) {
      training.pass(model);
      OK(ddp_optimizer_step(sgd, nullptr));
      ddp_model_stats stats{};
      stats.struct_size = sizeof stats;
      OK(ddp_model_get_stats(model, &stats));
      report.say(std::to_string(stats.comm_ns));
    }
    OK(ddp_group_stop_trace(training.group));
    expect(std::filesystem::exists(training.trace()), "the file is there");
  });
  const std::vector<ProcResult> results = procs.wait();
  for (const ProcResult& result : results) expect(result.exit_code == 0, result.describe());
  expect(!std::filesystem::exists(folder.path() + "/trace.json.ranks"), "the rings are gone");
  const Trace trace(folder.path() + "/trace.json");
  expect_rows(trace);
  for (int rank = 0; rank < 2; ++rank) {
    expect_equal(trace.rank(static_cast<size_t>(rank)).at("lost").get<int>(), 0, "lost");
    expect_equal(trace.rank(static_cast<size_t>(rank)).at("clock_error_us").get<double>(), 0.0, "one clock");
    expect_equal(trace.of(rank, "step").size(), size_t{kPasses}, "steps");
    expect_equal(trace.of(rank, "ddp_model_end_backward").size(), size_t{kPasses}, "calls");
    const std::vector<Json> passes = trace.of(rank, "pass ");
    expect_equal(passes.size(), size_t{kPasses}, "passes");
    expect_arrows(trace, rank, kParameters, kPasses);
    expect_counters(trace, rank, kElements * 4);
    std::istringstream said(results[static_cast<size_t>(rank)].said);
    double closest = 1e18;
    for (const Json& pass : passes) {
      int64_t comm_ns = 0;
      said >> comm_ns;
      closest = std::min(closest, check_pass(trace, rank, pass, comm_ns));
    }
    expect(closest < 500, "as long as the communication of the pass, but for " + std::to_string(closest) + " us");
  }
}

ddp_case(whom_a_rank_waited_for_is_told) {
  constexpr int64_t kLateMs = 60;
  const Folder folder;
  Procs procs(3, [&](int rank, Reporter&) {
    Training training(folder, rank, 3);
    training.start();
    OK(ddp_group_barrier(training.group));
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(kLateMs));
    OK(ddp_group_barrier(training.group));
    ddp_group* part = nullptr;  // in it rank 2 is rank 0, and no other rank is late
    OK(ddp_group_split(training.group, rank == 0 ? DDP_NO_COLOR : 0, -rank, nullptr, &part));
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(kLateMs));
    if (part != nullptr) OK(ddp_group_barrier(part));
    if (part != nullptr) ddp_group_destroy(part);
    OK(ddp_group_stop_trace(training.group));
  });
  expect_done(procs);
  const Trace trace(folder.path() + "/trace.json");
  const auto waited_ms = [&](int rank) {
    double sum = 0;
    for (const Json& wait : trace.of(rank, "wait for rank 2")) sum += wait.at("dur").get<double>() * 1e-3;
    return sum;
  };
  expect(waited_ms(0) > kLateMs / 2, "rank 0 waited for rank 2: " + std::to_string(waited_ms(0)));
  expect(waited_ms(1) > kLateMs * 3 / 2, "rank 1 waited for it twice: " + std::to_string(waited_ms(1)));
}

ddp_case(models_sub_groups_and_void_passes_are_told_apart) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    Training training(folder, rank, 2);
    ddp_model *const first = training.model_on(training.group, "a"), *const second = training.model_on(training.group, "b");
    training.start();
    expect(ddp_group_start_trace(training.group, "x", nullptr) == DDP_ERROR_INVALID_STATE, "a trace is on");
    ddp_group* part = nullptr;
    OK(ddp_group_split(training.group, 0, -rank, nullptr, &part));
    training.pass(first);
    training.pass(second);
    training.pass(second, 1);
    training.pass(training.model_on(part, "c"));
    ddp_group_destroy(part);
    OK(ddp_group_barrier(training.group));
    OK(ddp_group_stop_trace(training.group));
    training.pass(first);  // it is not recorded
    expect(ddp_group_stop_trace(training.group) == DDP_ERROR_INVALID_STATE, "no trace is on");
  });
  expect_done(procs);
  const Trace trace(folder.path() + "/trace.json");
  expect_rows(trace);
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto& [name, model] : {std::pair("a", 1), std::pair("b", 2), std::pair("c", 3)}) {
      const std::vector<Json> marks = trace.of(rank, std::string(name) + "0");
      expect_equal(marks.size(), size_t{std::string_view(name) == "b" ? 2U : 1U}, std::string("marks of ") + name);
      expect_equal(marks.front().at("args").at("model").get<int>(), model, std::string("the model of ") + name);
    }
    expect_equal(trace.of(rank, "void pass").size(), size_t{1}, "void passes");
    expect_equal(trace.of(rank, "ddp_group_split").size(), size_t{1}, "calls");
  }
}

ddp_case(when_it_has_gone_round_the_newest_stay) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    Training training(folder, rank, 2);
    training.start(64);
    for (int i = 0; i < 1'000; ++i) OK(ddp_group_barrier(training.group));
    OK(ddp_group_stop_trace(training.group));
  });
  expect_done(procs);
  const Trace trace(folder.path() + "/trace.json");
  expect_equal(trace.rank(0).at("events").get<int>(), 64, "events");
  expect(trace.rank(0).at("lost").get<int>() >= 1'000 - 64, "lost ones are counted");
  expect(trace.of(0, "ddp_group_barrier").size() >= 30, "the newest are there");
}

ddp_case(a_rank_that_dies_leaves_its_last_moments) {
  const Folder folder;
  Procs procs(3, [&](int rank, Reporter& report) {
    Training training(folder, rank, 3, 1);
    ddp_model* const model = training.model_on(training.group);
    training.start();
    training.pass(model);
    if (rank == 2) {
      OK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
      OK(ddp_model_mark_ready(model, 3, nullptr));
      report.say("marked");
      for (;;) pause();
    }
    while (ddp_group_barrier(training.group) == DDP_OK) continue;
    OK(ddp_group_recover(training.group, nullptr, nullptr));
    training.pass(model);
    ddp_model_destroy(model);
    return;  // and no rank stops the trace
  });
  procs.wait_for(2, "marked");
  procs.signal(2, SIGKILL);
  for (const int rank : {0, 1}) expect(procs.wait_one(rank).exit_code == 0, procs.wait_one(rank).describe());
  const Trace trace(folder.path() + "/trace.json");
  expect_rows(trace);
  expect_equal(trace.all.at("otherData").at("ranks").size(), size_t{3}, "ranks");
  expect_equal(trace.of(2, "pass ").size(), size_t{1}, "whole passes of the dead");
  expect_equal(trace.of(2, "param3").size(), size_t{2}, "its marks, the last among them");
  expect_equal(trace.of(0, "pass ").size(), size_t{2}, "passes of one that went on");
  expect(!std::filesystem::exists(folder.path() + "/trace.json.ranks"), "the rings are gone");
}

ddp_case(a_fork_leaves_the_trace_alone) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    Training training(folder, rank, 2);
    training.start();
    OK(ddp_group_barrier(training.group));
    const pid_t child = fork();
    if (child == 0) {
      static_cast<void>(ddp_group_barrier(training.group));
      static_cast<void>(ddp_group_stop_trace(training.group));
      ddp_group_destroy(training.group);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
    OK(ddp_group_barrier(training.group));
    OK(ddp_group_stop_trace(training.group));
  });
  expect_done(procs);
  expect_equal(Trace(folder.path() + "/trace.json").of(0, "ddp_group_barrier").size(), size_t{2}, "calls of the parent");
}

ddp_case(what_cannot_be_written_fails_on_all_ranks_and_the_group_goes_on) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    Training training(folder, rank, 2);
    const std::string nowhere = folder.path() + "/none/trace.json";
    expect(ddp_group_start_trace(training.group, nowhere.c_str(), nullptr) == DDP_ERROR_IO, ddp_last_error());
    expect(ddp_group_start_trace(training.group, nullptr, nullptr) == DDP_ERROR_INVALID_ARGUMENT, ddp_last_error());
    auto options = defaults<ddp_trace_options>();
    options.capacity = 63;
    expect(ddp_group_start_trace(training.group, "t", &options) == DDP_ERROR_INVALID_ARGUMENT, ddp_last_error());
    training.start();
    OK(ddp_group_barrier(training.group));
    if (rank == 0) std::filesystem::create_directory(training.trace());
    OK(ddp_group_barrier(training.group));
    expect(ddp_group_stop_trace(training.group) == DDP_ERROR_IO, ddp_last_error());
    expect(ddp_group_stop_trace(training.group) == DDP_ERROR_INVALID_STATE, "it is over");
    OK(ddp_group_barrier(training.group));
  });
  expect_done(procs);
}

ddp_case(ranks_of_two_hosts_are_aligned) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    setenv("DDP_TEST_HOST", std::to_string(rank).c_str(), 1);
    Training training(folder, rank, 2);
    training.start();
    for (int i = 0; i < 5; ++i) OK(ddp_group_barrier(training.group));
    OK(ddp_group_stop_trace(training.group));
  });
  for (const ProcResult& result : procs.wait()) {
    if (result.text.find("the Gloo module") != std::string::npos)
      return (void)std::printf("skipped: %s\n", result.text.c_str());
    expect(result.exit_code == 0, result.describe());
  }
  const Trace trace(folder.path() + "/trace.json");
  const double offset_us = trace.rank(1).at("clock_offset_us"), error_us = trace.rank(1).at("clock_error_us");
  expect(error_us > 0 && error_us < 1e6, "an error is stated: " + std::to_string(error_us));
  expect(std::abs(offset_us) <= error_us, "the truth, 0, lies within it: " + std::to_string(offset_us));
}
