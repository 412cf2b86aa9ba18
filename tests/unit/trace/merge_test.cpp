// SPDX-License-Identifier: Apache-2.0
#include "trace/merge.hpp"

#include <nlohmann/json.hpp>

#include "support/check.hpp"
#include "support/file_faults.hpp"
#include "trace/gpu_work.hpp"

using namespace ddp::trace;
using Json = nlohmann::json;

Ring ring_of(int32_t rank, const std::string& boot, std::vector<Event> events) {
  Ring ring;
  ring.owner.rank = rank;
  ring.owner.pid = 100 + rank;
  std::strcpy(ring.owner.host, "h");
  boot.copy(ring.owner.boot, sizeof ring.owner.boot - 1);
  ring.events = std::move(events);
  return ring;
}

Event span(EventKind kind, uint32_t number, int64_t begin_ns, int64_t end_ns) { return {kind, 1, number, begin_ns, end_ns}; }

Json merged(const std::vector<Ring>& rings) {
  std::string text;
  merge(rings, [&](std::string_view piece) { text += piece; });
  return Json::parse(text);
}

std::vector<Json> of_phase(const Json& trace, const std::string& phases) {
  std::vector<Json> found;
  for (const Json& event : trace.at("traceEvents"))
    if (phases.find(event.at("ph").get<std::string>()) != std::string::npos) found.push_back(event);
  return found;
}
std::vector<Json> spans(const Json& trace) { return of_phase(trace, "Xi"); }

ddp_case(times_count_from_the_first_event) {
  const std::vector<Json> events = spans(merged({ring_of(1, "b", {span(EventKind::kStep, 0, 5'000'000, 5'001'250)}),
                                                 ring_of(0, "b", {span(EventKind::kSave, 0, 4'999'000, 5'000'001)})}));
  expect_equal(events.size(), size_t{2}, "events");
  expect(events[0].at("name") == "save" && events[0].at("ts") == 0.0 && events[0].at("dur") == 1.001, events[0].dump());
  expect(events[1].at("name") == "step" && events[1].at("ts") == 1.0 && events[1].at("dur") == 1.25, events[1].dump());
  expect(events[1].at("pid") == 1, "a process for each rank");
}

ddp_case(what_overlaps_gets_a_row_of_its_own) {
  const std::vector<Json> events = spans(merged({ring_of(
      0, "b",
      {span(EventKind::kReducing, 0, 0, 100), span(EventKind::kReducing, 1, 50, 150), span(EventKind::kReducing, 2, 60, 90),
       span(EventKind::kReducing, 3, 100, 200), span(EventKind::kReducing, 4, 150, 160)})}));
  const auto row = [&](size_t n) { return events[n].at("tid").get<int>(); };
  expect(row(0) != row(1), "two that overlap");
  expect(row(2) == row(0), "one inside another");
  expect(row(3) == row(0), "one behind another");
  expect(row(4) == row(0), "inside the next");
}

ddp_case(streams_of_gpus_have_rows_of_their_own) {
  const auto work = [](GpuWork what, uint32_t bucket, GpuRow row, int64_t begin_ns, int64_t end_ns) {
    return Event{EventKind::kGpu, 0, bucket, begin_ns, end_ns, 0, row.number(), static_cast<uint32_t>(what)};
  };
  const Json trace = merged(
      {ring_of(0, "b",
               {span(EventKind::kReducing, 3, 0, 90), work(GpuWork::kAllReduce, 3, {1, GpuRow::kCommunication}, 10, 50),
                work(GpuWork::kStep, kNoBucket, {1, GpuRow::kProgram + 1}, 20, 70),
                work(GpuWork::kUnpack, 3, {1, GpuRow::kCommunication}, 50, 60),
                work(static_cast<GpuWork>(200), kNoBucket, {1, GpuRow::kUpdates}, 50, 60)})});
  std::map<int, std::string> rows;
  for (const Json& entry : trace.at("traceEvents"))
    if (entry.at("name") == "thread_name") rows[entry.at("tid").get<int>()] = entry.at("args").at("name").get<std::string>();
  std::vector<std::string> found;
  for (const Json& event : spans(trace))
    found.push_back(rows.at(event.at("tid").get<int>()) + ": " + event.at("name").get<std::string>());
  const std::vector<std::string> expected = {"buckets: bucket 3 reducing", "GPU 1 communication: bucket 3 all-reduce",
                                             "GPU 1 program's stream 2: optimizer", "GPU 1 communication: bucket 3 unpack",
                                             "GPU 1 updates beside it: work"};
  expect(found == expected, Json(found).dump());
  expect_equal(rows.size(), size_t{4}, "rows");
}

Event mark(uint32_t model, uint32_t pass, int64_t at_ns, int32_t bucket, int64_t more) {
  return {EventKind::kMark, model, 0, at_ns, at_ns, more, bucket, pass};
}
Event of_pass(EventKind kind, uint32_t model, uint32_t pass, uint32_t bucket, int64_t begin_ns, int64_t end_ns) {
  return {kind, model, bucket, begin_ns, end_ns, 64, -1, pass};
}

/// Two models have passes at one time. Of the first a gradient is in buckets 0 and 1; the second pass of it did not end.
ddp_case(arrows_go_from_marks_to_buckets_to_the_end) {
  const Json trace = merged({ring_of(
      0, "b",
      {of_pass(EventKind::kPass, 1, 1, 1, 0, 1'000), of_pass(EventKind::kPass, 2, 7, 7, 5, 2'000), mark(1, 1, 10, 0, 1),
       mark(2, 7, 20, 0, 0), mark(1, 1, 30, 0, 0), of_pass(EventKind::kReducing, 1, 1, 0, 40, 900),
       of_pass(EventKind::kReducing, 2, 7, 0, 50, 60), of_pass(EventKind::kReducing, 1, 1, 1, 70, 1'000),
       mark(1, 2, 3'000, 0, 0), of_pass(EventKind::kReducing, 1, 2, 0, 3'010, 3'020)})});
  std::map<int, std::vector<double>> arrows;
  for (const Json& end : of_phase(trace, "sf")) {
    expect(end.at("name") == "gradient" && (end.at("ph") == "s" || end.at("bp") == "e"), end.dump());
    arrows[end.at("id").get<int>()].push_back(end.at("ts").get<double>());
  }
  std::vector<std::vector<double>> found;
  for (const auto& [id, ends] : arrows) found.push_back(ends);
  const std::vector<std::vector<double>> expected = {{0.01, 0.04},   {0.03, 0.04}, {0.899, 0.999}, {0.02, 0.05},
                                                     {0.059, 1.999}, {0.01, 0.07}, {0.999, 0.999}, {3.0, 3.01}};
  expect(found == expected, Json(found).dump());
}

/// A damaged file says anything: neither time nor memory depends on it, and sums wrap.
ddp_case(a_mark_may_say_any_number_of_buckets) {
  constexpr int64_t kMany = (int64_t{1} << 56) - 1;
  Event large = of_pass(EventKind::kReducing, 1, 1, 8, 20, 30);
  large.bytes = kMany;
  const Json trace = merged({ring_of(0, "b", {mark(1, 1, 10, 7, kMany), large, large})});
  expect_equal(of_phase(trace, "s").size(), size_t{2}, "an arrow to each span of a bucket in the mark's range");
  expect(!of_phase(trace, "C").empty(), "counters");
}

ddp_case(counters_follow_the_buckets) {
  const Json trace =
      merged({ring_of(0, "b",
                      {of_pass(EventKind::kWaiting, 1, 1, 0, 0, 10), of_pass(EventKind::kWaiting, 1, 1, 1, 5, 20),
                       of_pass(EventKind::kReducing, 1, 1, 0, 10, 30), of_pass(EventKind::kReducing, 1, 1, 1, 20, 25)})});
  std::vector<std::string> found;
  for (const Json& count : of_phase(trace, "C")) {
    const bool bytes = count.at("name") == "bytes in flight";
    found.push_back((bytes ? "f" : "w") + std::to_string(static_cast<int>(1000 * count.at("ts").get<double>() + 0.5)) + "=" +
                    std::to_string(count.at("args").at(bytes ? "bytes" : "buckets").get<int>()));
  }
  const std::vector<std::string> expected = {"f0=0",    "w0=1",  "f5=0",   "w5=2",  "f10=64", "w10=1",
                                             "f20=128", "w20=0", "f25=64", "w25=0", "f30=0",  "w30=0"};
  expect(found == expected, Json(found).dump());
}

ddp_case(clocks_are_aligned_by_gathers) {
  Ring first = ring_of(0, "a", {span(EventKind::kStep, 0, 1'000'000, 1'000'100)});
  first.gathers = {{1, 100, 200}, {2, 1'000, 1'050}};
  Ring other = ring_of(1, "b", {span(EventKind::kStep, 0, 501'000'000, 501'000'100)});  // half a second ahead
  other.gathers = {{1, 500'000'110, 500'000'190}, {2, 500'001'010, 500'001'040}, {7, 0, 1}};
  const Json trace = merged({first, other});
  const Json& clock = trace.at("otherData").at("ranks").at(1);
  const double offset = clock.at("clock_offset_us"), error = clock.at("clock_error_us");
  expect(offset - error <= -500'000.0 && -500'000.0 <= offset + error, "the truth lies within the bounds");
  expect(error <= 0.041, "the second gather counts: " + std::to_string(error));
  expect(std::abs(spans(trace)[1].at("ts").get<double>()) < 0.05, "the two steps are simultaneous");
  expect_equal(merged({first, ring_of(1, "b", {})}).at("otherData").at("ranks").at(1).at("clock").get<std::string>(),
               "not compared", "without gathers");
}

ddp_case(times_that_no_clock_shows_are_left_out) {
  Ring first = ring_of(0, "one", {span(EventKind::kStep, 0, 0, 1)}), other = ring_of(1, "two", {});
  first.gathers = {{1, INT64_MIN, INT64_MAX}, {2, 100, 200}};
  other.gathers = {{1, INT64_MAX, INT64_MIN}, {2, INT64_MAX, INT64_MAX}};
  expect_equal(merged({first, other}).at("otherData").at("ranks")[1].at("clock").get<std::string>(), "not compared",
               "no gather of both");
  other.gathers[1] = {2, 100, 200};
  expect(merged({first, other}).at("otherData").at("ranks")[1].at("clock_offset_us") == 0.0, "by the gather that is whole");
}

ddp_case(a_place_that_two_processes_had_is_two) {
  Ring old = ring_of(1, "b", {span(EventKind::kStep, 0, 0, 1)}), next = ring_of(1, "b", {span(EventKind::kStep, 0, 5, 6)});
  old.owner.start_ns = 1, next.owner.start_ns = 2, next.owner.pid = 777;
  const std::vector<Json> events = spans(merged({next, old}));
  expect(events[0].at("pid") == 1 && events[0].at("ts") == 0.0, "the first keeps the number");
  expect(events[1].at("pid") != 1, "the second gets another");
}

ddp_case(names_are_quoted) {
  Ring ring =
      ring_of(0, "b", {span(EventKind::kMark, 2, 0, 0), span(EventKind::kCall, 9, 1, 2), span(EventKind::kCall, 4, 3, 4)});
  ring.parameters[{1, 2}] = "a \"b\" \\ \t c";
  ring.calls[9] = "ddp_group_barrier";
  const std::vector<Json> events = spans(merged({ring}));
  expect_equal(events[0].at("name").get<std::string>(), "a \"b\" \\ \t c", "a mark");
  expect(events[0].at("ph") == "X" && events[0].at("dur") == 0.001, "as short as a span can be: an arrow begins there");
  expect_equal(events[1].at("name").get<std::string>(), "ddp_group_barrier", "a call");
  expect_equal(events[2].at("name").get<std::string>(), "call 4", "a call without a name");
}

ddp_case(nothing_is_a_trace_too) {
  expect(spans(merged({})).empty(), "no rings");
  expect(spans(merged({ring_of(0, "b", {})})).empty(), "no events");
}

ddp_case(a_file_that_cannot_be_written_leaves_nothing) {
  const TemporaryFolder folder;
  const std::vector<Ring> rings{ring_of(0, "b", {span(EventKind::kStep, 0, 0, 1)})};
  for (int64_t at = 1; at <= 3; ++at) {
    const FileFaults faults({.at = at, .count = 1, .code = ENOSPC});
    static_cast<void>(expect_error(DDP_ERROR_IO, [&] { merge_to(folder.file("t"), rings); }));
  }
  expect(folder.names().empty(), "no file was left");
  merge_to(folder.file("t"), rings);
  expect_equal(folder.names().size(), size_t{1}, "files");
}
