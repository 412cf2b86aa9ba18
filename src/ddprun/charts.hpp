// SPDX-License-Identifier: Apache-2.0
// Charts as parts of a page: pure functions. Each is followed by the table of its numbers, for screen readers and for the
// page's script.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ddp::ddprun {

/// A line over time. Negative values are gaps.
struct Series {
  std::string name{};
  int colour = 0;  // of page_style.cpp: 0 to 7
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
  double most = 0;               // that the axis needs; 0: what the values need
  std::vector<double> events{};  // moments with a mark
  std::string events_are{};      // what they are
  std::function<std::string(double)> format{};
};

[[nodiscard]] std::string time_chart(const TimeChart& chart);

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

[[nodiscard]] std::string bar_chart(const BarChart& chart);

/// `cells`: first the heads. With `open` it needs no opening.
[[nodiscard]] std::string data_table(const std::vector<std::vector<std::string>>& cells, const std::string& caption,
                                     bool open);

}  // namespace ddp::ddprun
