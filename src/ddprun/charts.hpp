// SPDX-License-Identifier: Apache-2.0
// Charts as JSON that the script of report.html draws: pure functions. Places on an axis are shares of its length, 0 to 1,
// and each number comes with its text, so the script computes nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ddprun/json.hpp"

namespace ddp::ddprun {

/// A line over time. Negative values are gaps, but where TimeChart::any_sign is set those that are not finite.
struct Series {
  std::string name{};
  int colour = 0;  // of report.html: 0 to 7
  std::vector<double> values{};
};

struct TimeChart {
  std::string id{};  // of the page
  std::string title{};
  std::string say{};  // a sentence: what it shows
  std::vector<double> seconds{};
  double length_s = 0;  // of the axis
  std::vector<Series> series{};
  bool stacked = false;          // areas on top of each other
  bool any_sign = false;         // values may be negative; not stacked
  std::vector<double> events{};  // moments with a mark
  std::string events_are{};      // what they are
  std::function<std::string(double)> format{};
};

/// `id`, `title`, `say`, `kind` "time", `area`, `x_marks` and `y_marks` (place and text), `events` (places), `events_are`,
/// `at` (places) and `times` (texts) of the values, `series`: `name`, `colour`, `top` and for stacked ones `bottom` (places,
/// null in a gap), `texts`.
[[nodiscard]] Json time_chart(const TimeChart& chart);

struct Bar {
  std::string name{};
  std::vector<double> parts{};  // one for each of BarChart::parts
  bool stands_out = false;
};

struct BarChart {
  std::string id{};
  std::string title{};
  std::string say{};
  std::string rows_are{};  // the table's first column: "rank"
  std::vector<std::string> parts{};
  std::vector<int> colours{};  // of the parts
  std::vector<Bar> bars{};
  double scale = 0;     // the least value of a full bar
  bool stacked = true;  // else each part has a row of its own
  std::function<std::string(double)> format{};
};

/// `id`, `title`, `say`, `kind` "bars", `rows_are`, `stacked`, `parts` (`name`, `colour`), `bars`: `name`, `out`, `value`
/// (text), `shares` and `texts` of the parts.
[[nodiscard]] Json bar_chart(const BarChart& chart);

}  // namespace ddp::ddprun
