// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/page_test.cpp and process/ddprun_report_test.sh.
#include "ddprun/run_json.hpp"

#include <nlohmann/json.hpp>

#include "ddprun/figures.hpp"

namespace ddp::ddprun {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(double value) { return value < 0 ? Json(nullptr) : Json(value); }

Json to_json(const Counts& counts) {
  Json json = Json::object();
  for (const NamedCount& each : kCounts) json[each.name] = counts.*each.count;
  return json;
}

Json to_json(const Buckets& buckets) {
  return {{"gradient_bytes", buckets.gradient_bytes},
          {"count", buckets.count},
          {"largest_bytes", buckets.largest},
          {"smallest_bytes", buckets.smallest}};
}

Json to_json(const RankRun& rank) {
  return {{"rank", rank.rank},
          {"host", rank.host},
          {"starts", rank.starts},
          {"end", rank.end},
          {"failed", rank.failed},
          {"ended_s", rank.ended_s},
          {"peak_memory_kib", rank.peak_kib},
          {"counts", to_json(rank.counts)},
          {"buckets", to_json(rank.buckets)},
          {"waited_ns", rank.waited_ns},
          {"awaited_ns", rank.awaited_ns}};
}

Json to_json(const Sample& sample) {
  return {{"seconds", sample.seconds}, {"steps", sample.steps},      {"passes", sample.passes},
          {"running", sample.running}, {"all", to_json(sample.all)}, {"resident_kib", sample.resident_kib}};
}

Json to_json(const RunFigures& figures) {
  Json json{{"unit", figures.unit},
            {"per_second", or_null(figures.per_second)},
            {"share_hidden", or_null(figures.share_hidden)},
            {"exposed_ms_per_pass", or_null(figures.exposed_ms)},
            {"straggler", figures.straggler < 0 ? Json(nullptr) : Json(figures.straggler)},
            {"findings", Json::array()}};
  for (const RunFinding& finding : figures.findings) json["findings"].push_back(finding.text);
  return json;
}

}  // namespace

// What is not UTF-8, such as an argument, is replaced.
std::string write_json(const Run& run) {
  Json json{{"format", "ddprun report 1"},
            {"version", run.version},
            {"command", run.command},
            {"machine", run.machine},
            {"started_unix_s", run.started_unix_s},
            {"seconds", run.seconds},
            {"exit_code", run.exit_code},
            {"world_size", run.world_size},
            {"restarts", run.restarts},
            {"figures", to_json(figures_of(run))}};
  for (const char* list : {"ranks", "events", "last_words", "samples"}) json[list] = Json::array();
  for (const RankRun& rank : run.ranks) json["ranks"].push_back(to_json(rank));
  for (const RunEvent& event : run.events) json["events"].push_back({{"seconds", event.seconds}, {"text", event.text}});
  for (const std::string& line : run.last_words) json["last_words"].push_back(line);
  for (const Sample& sample : run.samples) json["samples"].push_back(to_json(sample));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ddp::ddprun
