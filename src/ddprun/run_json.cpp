// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/page_test.cpp and process/ddprun_report_test.sh.
#include "ddprun/run_json.hpp"

#include <cmath>

#include "ddprun/figures.hpp"
#include "ddprun/json.hpp"

namespace ddp::ddprun {
namespace {

Json or_null(double value) { return value < 0 ? Json(nullptr) : Json(value); }

Json or_null(int32_t number) { return number <= 0 ? Json(nullptr) : Json(number); }

Json to_json(const NamedHost& machine) { return {{"name", machine.name}, {"cores", or_null(machine.cores)}}; }

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

/// JSON has no other numbers.
Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json to_json(const std::vector<ProgramValue>& program) {
  Json json = Json::object();
  for (const ProgramValue& each : program) json[each.name] = {{"last", finite_or_null(each.value)}, {"times", each.times}};
  return json;
}

Json to_json(const RankRun& rank) {
  return {{"rank", rank.rank},
          {"host", rank.host},
          {"cores", or_null(rank.cores)},
          {"transport", name_transports(rank.transports)},
          {"starts", rank.starts},
          {"end", rank.end},
          {"failed", rank.failed},
          {"ended_s", rank.ended_s},
          {"peak_memory_kib", rank.peak_kib},
          {"counts", to_json(rank.counts)},
          {"buckets", to_json(rank.buckets)},
          {"waited_ns", rank.waited_ns},
          {"awaited_ns", rank.awaited_ns},
          {"group", rank.group},
          {"program", to_json(rank.program)}};
}

Json to_json(const Sample& sample, const std::vector<std::string>& names) {
  Json program = Json::object();
  for (size_t i = 0; i < sample.program.size(); ++i) program[names[i]] = finite_or_null(sample.program[i]);
  return {{"seconds", sample.seconds},    {"steps", sample.steps},      {"passes", sample.passes},
          {"running", sample.running},    {"all", to_json(sample.all)}, {"resident_kib", sample.resident_kib},
          {"program", std::move(program)}};
}

const char* name_of(RunFinding::Kind kind) {
  return kind == RunFinding::Kind::kGood ? "good" : kind == RunFinding::Kind::kBad ? "bad" : "note";
}

Json to_json(const RunFigures& figures) {
  Json json{{"unit", figures.unit},
            {"per_second", or_null(figures.per_second)},
            {"share_hidden", or_null(figures.share_hidden)},
            {"exposed_ms_per_pass", or_null(figures.exposed_ms)},
            {"straggler", figures.straggler < 0 ? Json(nullptr) : Json(figures.straggler)},
            {"no_pass", figures.no_pass.empty() ? Json(nullptr) : Json(figures.no_pass)},
            {"findings", Json::array()}};
  for (const RunFinding& finding : figures.findings)
    json["findings"].push_back({{"kind", name_of(finding.kind)}, {"text", finding.text}});
  return json;
}

}  // namespace

nlohmann::ordered_json report_json(const Run& run) {
  Json json{{"format", "ddprun report 1"},
            {"version", run.version},
            {"command", run.command},
            {"machine", to_json(run.machine)},
            {"transport", name_transports(transports_of(run))},
            {"started_unix_s", run.started_unix_s},
            {"seconds", run.seconds},
            {"exit_code", run.exit_code},
            {"world_size", run.world_size},
            {"restarts", run.restarts},
            {"least_ranks", run.least_ranks},
            {"figures", to_json(figures_of(run))}};
  for (const char* list : {"ranks", "events", "last_words"}) json[list] = Json::array();
  for (const RankRun& rank : run.ranks) json["ranks"].push_back(to_json(rank));
  for (const RunEvent& event : run.events) json["events"].push_back({{"seconds", event.seconds}, {"text", event.text}});
  for (const std::string& line : run.last_words) json["last_words"].push_back(line);
  return json;
}

std::string write_json(const Run& run) {
  Json json = report_json(run);
  json["samples"] = Json::array();
  for (const Sample& sample : run.samples) json["samples"].push_back(to_json(sample, run.names));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ddp::ddprun
