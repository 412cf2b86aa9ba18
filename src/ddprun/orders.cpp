// SPDX-License-Identifier: Apache-2.0
// Bytes are sent in hexadecimal, so that a message stays one line.
// Tested by unit/ddprun/orders_test.cpp.
#include "ddprun/orders.hpp"

#include <algorithm>
#include <sstream>

namespace ddp::ddprun {
namespace {

constexpr char kDigits[] = "0123456789abcdef";
constexpr int32_t kMostRanks = 1 << 20;

std::string to_hex(std::string_view bytes) {
  std::string text = "x";  // an empty word would be none
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::optional<std::string> from_hex(std::string_view text) {
  if (text.empty() || text.front() != 'x' || text.size() % 2 == 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 1; i < text.size(); i += 2) {
    const size_t high = std::string_view(kDigits).find(text[i]), low = std::string_view(kDigits).find(text[i + 1]);
    if (high > 15 || low > 15) return std::nullopt;
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

/// A name of a file in one folder, and nothing else.
bool is_name(const std::string& name) { return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos; }

bool read_bytes(std::istringstream& words, std::string& bytes) {
  std::string hex;
  if (!(words >> hex)) return false;
  const std::optional<std::string> read = from_hex(hex);
  if (read.has_value()) bytes = *read;
  return read.has_value();
}

bool is_over(std::istringstream& words) {
  std::string rest;
  return !(words >> rest);
}

}  // namespace

std::string write_order(const Order& order) {
  switch (order.kind) {
    case Order::Kind::kStart:
      return "start " + std::to_string(order.first) + " " + std::to_string(order.last) + " " +
             std::to_string(order.how.restarts) + " " + (order.how.joins ? "1" : "0");
    case Order::Kind::kFile: return "file " + to_hex(order.name) + " " + to_hex(order.bytes);
    case Order::Kind::kOver: break;
  }
  return "over";
}

std::optional<Order> read_order(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string kind;
  Order order;
  int joins = 0;
  words >> kind;
  bool good = false;
  if (kind == "start") {
    order.kind = Order::Kind::kStart;
    good = static_cast<bool>(words >> order.first >> order.last >> order.how.restarts >> joins) && order.first >= 0 &&
           order.last >= order.first && order.last < kMostRanks;
    order.how.joins = joins == 1;
  } else if (kind == "file") {
    order.kind = Order::Kind::kFile;
    good = read_bytes(words, order.name) && read_bytes(words, order.bytes) && is_name(order.name);
  } else {
    good = kind == "over";
  }
  return good && is_over(words) ? std::optional(order) : std::nullopt;
}

std::string write_report(const Report& report) {
  const std::string rank = std::to_string(report.rank);
  switch (report.kind) {
    case Report::Kind::kEnded:
      return "ended " + rank + " " + std::to_string(report.status) + " " + std::to_string(report.peak_kib);
    case Report::Kind::kLine: return "line " + rank + " " + to_hex(report.bytes);
    case Report::Kind::kLook: return "look " + to_hex(report.bytes);
    case Report::Kind::kPiece:
      return "piece " + to_hex(report.name) + " " + std::to_string(report.offset) + " " + to_hex(report.bytes);
    case Report::Kind::kFile: break;
  }
  return "file " + to_hex(report.name) + " " + to_hex(report.bytes);
}

std::optional<Report> read_report(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string kind;
  Report report;
  words >> kind;
  bool good = false;
  if (kind == "ended") {
    good = static_cast<bool>(words >> report.rank >> report.status >> report.peak_kib);
  } else if (kind == "line") {
    report.kind = Report::Kind::kLine;
    good = words >> report.rank && read_bytes(words, report.bytes);
  } else if (kind == "piece") {
    report.kind = Report::Kind::kPiece;
    good = read_bytes(words, report.name) && words >> report.offset && read_bytes(words, report.bytes) &&
           is_name(report.name) && report.offset >= 0;
  } else if (kind == "look") {
    report.kind = Report::Kind::kLook;
    good = read_bytes(words, report.bytes);
  } else if (kind == "file") {
    report.kind = Report::Kind::kFile;
    good = read_bytes(words, report.name) && read_bytes(words, report.bytes) && is_name(report.name);
  }
  return good && report.rank >= 0 && is_over(words) ? std::optional(report) : std::nullopt;
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
