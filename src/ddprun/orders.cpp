// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/orders_test.cpp.
#include "ddprun/orders.hpp"

#include <algorithm>

#include "ddprun/fields.hpp"

namespace ddp::ddprun {
namespace {

constexpr int32_t kMostOrdered = 1 << 20;
constexpr int kMostSignals = 64;

/// A name of a file in one folder, and nothing else.
bool is_name(const std::string& name) { return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos; }

std::string read_name(Fields& fields) {
  std::string name = fields.text("name");
  fields.refuse_unless(is_name(name));
  return name;
}

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json json_of(std::string_view line) { return Json::parse(line, nullptr, false); }

}  // namespace

std::string write_order(const Order& order) {
  switch (order.kind) {
    case Order::Kind::kStart:
      return line_of({{"order", "start"},
                      {"first", order.first},
                      {"last", order.last},
                      {"restarts", order.how.restarts},
                      {"joins", order.how.joins}});
    case Order::Kind::kFile: return line_of({{"order", "file"}, {"name", order.name}, {"bytes", to_hex(order.bytes)}});
    case Order::Kind::kSignal: return line_of({{"order", "signal"}, {"number", order.number}});
    case Order::Kind::kEnvironment: {
      Json assignments = Json::array();
      for (const std::string& assignment : order.assignments) assignments.push_back(to_hex(assignment));
      return line_of({{"order", "environment"}, {"assignments", std::move(assignments)}});
    }
    case Order::Kind::kOver: break;
  }
  return line_of({{"order", "over"}});
}

std::optional<Order> read_order(std::string_view line) {
  const Json json = json_of(line);
  Fields fields(json);
  Order order;
  const std::string kind = fields.text("order");
  if (kind == "start") {
    order.kind = Order::Kind::kStart;
    order.first = fields.number<int32_t>("first", 0, kMostOrdered);
    order.last = fields.number<int32_t>("last", order.first, kMostOrdered);
    order.how = {fields.number<int32_t>("restarts"), fields.truth("joins")};
  } else if (kind == "file") {
    order.kind = Order::Kind::kFile;
    order.name = read_name(fields);
    order.bytes = fields.bytes("bytes");
  } else if (kind == "signal") {
    order.kind = Order::Kind::kSignal;
    order.number = fields.number<int>("number", 0, kMostSignals);
  } else if (kind == "environment") {
    order.kind = Order::Kind::kEnvironment;
    for (const Json& each : fields.list("assignments")) {
      const Json one{{"bytes", each}};
      Fields assignment(one);
      order.assignments.push_back(assignment.bytes("bytes"));
      fields.refuse_unless(assignment.good());
    }
  } else {
    fields.refuse_unless(kind == "over");
  }
  return fields.good() ? std::optional(order) : std::nullopt;
}

std::string write_report(const Report& report) {
  switch (report.kind) {
    case Report::Kind::kEnded:
      return line_of({{"report", "ended"}, {"rank", report.rank}, {"status", report.status}, {"peak_kib", report.peak_kib}});
    case Report::Kind::kLine: return line_of({{"report", "line"}, {"rank", report.rank}, {"bytes", to_hex(report.bytes)}});
    case Report::Kind::kLook: return line_of({{"report", "look"}, {"look", look_json(report.look)}});
    case Report::Kind::kPiece:
      return line_of(
          {{"report", "piece"}, {"name", report.name}, {"offset", report.offset}, {"bytes", to_hex(report.bytes)}});
    case Report::Kind::kFile: break;
  }
  return line_of({{"report", "file"}, {"name", report.name}, {"bytes", to_hex(report.bytes)}});
}

std::optional<Report> read_report(std::string_view line) {
  const Json json = json_of(line);
  Fields fields(json);
  Report report;
  const std::string kind = fields.text("report");
  if (kind == "ended") {
    report.rank = fields.number<int32_t>("rank");
    report.status = fields.number<int>("status", std::numeric_limits<int>::min());
    report.peak_kib = fields.number<int64_t>("peak_kib");
  } else if (kind == "line") {
    report.kind = Report::Kind::kLine;
    report.rank = fields.number<int32_t>("rank");
    report.bytes = fields.bytes("bytes");
  } else if (kind == "piece") {
    report.kind = Report::Kind::kPiece;
    report.name = read_name(fields);
    report.offset = fields.number<int64_t>("offset");
    report.bytes = fields.bytes("bytes");
  } else if (kind == "look") {
    report.kind = Report::Kind::kLook;
    std::optional<Look> look = read_look(fields.object("look"));
    fields.refuse_unless(look.has_value());
    if (look.has_value()) report.look = std::move(*look);
  } else {
    report.kind = Report::Kind::kFile;
    report.name = read_name(fields);
    report.bytes = fields.bytes("bytes");
    fields.refuse_unless(kind == "file");
  }
  return fields.good() ? std::optional(report) : std::nullopt;
}

std::string report_mark(const std::string& word) { return "\x1e" + word + " "; }

std::vector<std::pair<int32_t, int32_t>> ranges_of(std::vector<int32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::pair<int32_t, int32_t>> ranges;
  for (const int32_t rank : ranks) {
    if (!ranges.empty() && ranges.back().second + 1 == rank) {
      ranges.back().second = rank;
    } else {
      ranges.emplace_back(rank, rank);
    }
  }
  return ranges;
}

}  // namespace ddp::ddprun
