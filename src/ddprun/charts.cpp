// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/page_test.cpp.
#include "ddprun/charts.hpp"

#include <algorithm>
#include <cmath>

#include "ddprun/numbers.hpp"

namespace ddp::ddprun {
namespace {

constexpr int kValueMarks = 4;
constexpr int kTimeMarks = 6;
constexpr double kPlaces = 1e4;  // more than a screen has

/// A share of an axis, short in text.
double place(double share) { return std::round(std::clamp(share, 0.0, 1.0) * kPlaces) / kPlaces; }

/// Sums of the series up to each, if they are stacked.
std::vector<std::vector<double>> tops_of(const TimeChart& chart) {
  std::vector<std::vector<double>> tops;
  for (const Series& series : chart.series) {
    tops.push_back(series.values);
    if (!chart.stacked || tops.size() < 2) continue;
    const std::vector<double>& below = tops[tops.size() - 2];
    for (size_t i = 0; i < tops.back().size(); ++i)
      if (tops.back()[i] >= 0 && below[i] >= 0) tops.back()[i] += below[i];
  }
  return tops;
}

bool is_gap(const TimeChart& chart, double value) { return chart.any_sign ? !std::isfinite(value) : value < 0; }

/// Of an axis.
struct Range {
  double least = 0;
  double most = 1;
  [[nodiscard]] double of(double value) const { return place((value - least) / (most - least)); }
};

Json times_of(const std::vector<double>& seconds, double length_s) {
  Json places = Json::array();
  for (const double each : seconds) places.push_back(place(each / length_s));
  return places;
}

Json places_of(const TimeChart& chart, const std::vector<double>& values, const Range& range) {
  Json places = Json::array();
  for (const double value : values) places.push_back(is_gap(chart, value) ? Json(nullptr) : Json(range.of(value)));
  return places;
}

Json marks_of(const std::vector<double>& marks, const Range& range, const std::function<std::string(double)>& format) {
  Json json = Json::array();
  for (const double mark : marks) json.push_back({range.of(mark), format(mark)});
  return json;
}

}  // namespace

Json time_chart(const TimeChart& chart) {
  const double length_s = std::max(chart.length_s, 1e-3);
  const std::vector<std::vector<double>> tops = tops_of(chart);
  double least = 0, most = 0;
  for (const auto& values : tops)
    for (const double value : values)
      if (!is_gap(chart, value)) least = std::min(least, value), most = std::max(most, value);
  const std::vector<double> marks = axis_marks_between(least, most, kValueMarks);
  const Range range{marks.front(), marks.back()};
  Json json{{"id", chart.id},
            {"title", chart.title},
            {"say", chart.say},
            {"kind", "time"},
            {"area", chart.stacked || (chart.series.size() == 1 && !chart.any_sign)},
            {"x_marks", marks_of(time_marks(length_s, kTimeMarks), {0, length_s}, format_time_mark)},
            {"y_marks", marks_of(marks, range, chart.format)},
            {"events", times_of(chart.events, length_s)},
            {"events_are", chart.events_are},
            {"at", times_of(chart.seconds, length_s)}};
  for (const char* list : {"times", "series"}) json[list] = Json::array();
  for (const double seconds : chart.seconds) json["times"].push_back(format_time(seconds));
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    Json line{{"name", series.name}, {"colour", series.colour}, {"top", places_of(chart, tops[i], range)}};
    if (chart.stacked && i > 0) line["bottom"] = places_of(chart, tops[i - 1], range);
    line["texts"] = Json::array();
    for (const double value : series.values) line["texts"].push_back(is_gap(chart, value) ? "–" : chart.format(value));
    json["series"].push_back(std::move(line));
  }
  return json;
}

Json bar_chart(const BarChart& chart) {
  double most = chart.scale;
  for (const Bar& bar : chart.bars) {
    double sum = 0;
    for (const double part : bar.parts) sum = chart.stacked ? sum + part : std::max(sum, part);
    most = std::max(most, sum);
  }
  Json json{{"id", chart.id},         {"title", chart.title},       {"say", chart.say},
            {"kind", "bars"},         {"rows_are", chart.rows_are}, {"stacked", chart.stacked},
            {"parts", Json::array()}, {"bars", Json::array()}};
  for (size_t i = 0; i < chart.parts.size(); ++i)
    json["parts"].push_back({{"name", chart.parts[i]}, {"colour", chart.colours[i]}});
  for (const Bar& bar : chart.bars) {
    double sum = 0;
    Json shares = Json::array(), texts = Json::array();
    for (const double part : bar.parts) {
      const std::string text = chart.format(part);
      sum += part;
      shares.push_back(most <= 0 || text == chart.format(0) ? 0.0 : place(part / most));  // "0 s" has no bar
      texts.push_back(text);
    }
    json["bars"].push_back({{"name", bar.name},
                            {"out", bar.stands_out},
                            {"value", chart.format(chart.stacked || bar.parts.empty() ? sum : bar.parts.front())},
                            {"shares", std::move(shares)},
                            {"texts", std::move(texts)}});
  }
  return json;
}

}  // namespace ddp::ddprun
