// SPDX-License-Identifier: Apache-2.0
// A plot is an SVG that fills the available width; its labels are separate HTML, so they keep their size on a phone. Tested
// by unit/ddprun/page_test.cpp.
#include "ddprun/charts.hpp"

#include <algorithm>
#include <cstdio>

#include "ddprun/numbers.hpp"

namespace ddp::ddprun {
namespace {

constexpr int kValueMarks = 4;
constexpr int kTimeMarks = 6;
constexpr size_t kLongCell = 20;  // bytes, from which on a cell of a table has several lines
constexpr double kSide = 1000;    // of the SVG

std::string fixed(double number) {
  char text[32];
  snprintf(text, sizeof text, "%.1f", number);
  return text;
}

std::string percent(double share) { return fixed(100 * share) + "%"; }

std::string head_of(const std::string& title, const std::string& say) {
  return "<h2>" + escape_html(title) + "</h2>" + (say.empty() ? "" : "<p class=say>" + escape_html(say) + "</p>");
}

std::string legend(const std::vector<std::pair<std::string, int>>& names) {
  if (names.size() < 2) return "";
  std::string html = "<ul class=legend aria-hidden=true>";
  for (const auto& [name, colour] : names)
    html += "<li><i class=c" + std::to_string(colour) + "></i>" + escape_html(name) + "</li>";
  return html + "</ul>";
}

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

class Plot {
 public:
  Plot(const TimeChart& chart, double most) : chart_(chart), most_(most) {}

  /// The pieces of a line between its gaps. `floor`: an area down to it; NULL: down to 0; only a line if `area` is not set.
  [[nodiscard]] std::string paths(const std::vector<double>& values, const std::vector<double>* floor, int colour,
                                  bool area) const {
    std::string html;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 0) continue;
      size_t end = i;
      while (end < values.size() && values[end] >= 0) ++end;
      std::string line;
      for (size_t at = i; at < end; ++at) line += (at == i ? "M" : "L") + point(at, values[at]);
      if (end == i + 1) line += "l0.1 0";  // a dot
      if (area) {
        std::string shape = line;
        for (size_t at = end; at-- > i;) shape += "L" + point(at, floor == nullptr ? 0 : std::max((*floor)[at], 0.0));
        html += "<path class='area f" + std::to_string(colour) + "' d='" + shape + "Z'/>";
      }
      html += "<path class='line s" + std::to_string(colour) + "' d='" + line + "'/>";
      i = end;
    }
    return html;
  }
  [[nodiscard]] double share_of(double seconds) const { return std::clamp(seconds / chart_.length_s, 0.0, 1.0); }

 private:
  [[nodiscard]] std::string point(size_t at, double value) const {
    return fixed(kSide * share_of(chart_.seconds[at])) + " " + fixed(kSide * (1 - value / most_));
  }

  const TimeChart& chart_;
  double most_;
};

std::string table_of(const TimeChart& chart) {
  std::string html = "<details><summary>Numbers as a table</summary><div class=scroll tabindex=0 role=region aria-label='" +
                     escape_html(chart.title) + ", table'><table><caption>" + escape_html(chart.title) +
                     "</caption><thead><tr><th scope=col>time</th>";
  for (const Series& series : chart.series) html += "<th scope=col>" + escape_html(series.name) + "</th>";
  html += "</tr></thead><tbody>";
  for (size_t i = 0; i < chart.seconds.size(); ++i) {
    html += "<tr data-x=" + fixed(kSide * std::clamp(chart.seconds[i] / chart.length_s, 0.0, 1.0)) + "><th scope=row>" +
            format_time(chart.seconds[i]) + "</th>";
    for (const Series& series : chart.series)
      html += "<td>" + (series.values[i] < 0 ? std::string("–") : escape_html(chart.format(series.values[i]))) + "</td>";
    html += "</tr>";
  }
  return html + "</tbody></table></div></details>";
}

std::string axes(const TimeChart& chart, const std::vector<double>& marks) {
  std::string html = "<div class=y aria-hidden=true>";
  for (const double mark : marks)
    html += "<span style='bottom:" + percent(mark / marks.back()) + "'>" + escape_html(chart.format(mark)) + "</span>";
  html += "</div><div class=x aria-hidden=true>";
  for (const double mark : time_marks(chart.length_s, kTimeMarks))
    html += "<span style='left:" + percent(mark / chart.length_s) + "'>" + format_time_mark(mark) + "</span>";
  return html + "</div>";
}

}  // namespace

std::string time_chart(const TimeChart& given) {
  TimeChart chart = given;
  chart.length_s = std::max(chart.length_s, 1e-3);
  const std::vector<std::vector<double>> tops = tops_of(chart);
  double most = chart.most;
  for (const auto& values : tops)
    if (chart.most <= 0)
      for (const double value : values) most = std::max(most, value);
  const std::vector<double> marks = axis_marks(most, kValueMarks);
  const Plot plot(chart, marks.back());
  std::vector<std::pair<std::string, int>> names;
  for (const Series& series : chart.series) names.emplace_back(series.name, series.colour);

  std::string html = "<section class=card id=" + chart.id + ">" + head_of(chart.title, chart.say) + legend(names) +
                     "<div class=plot tabindex=0 role=group aria-label='" +
                     escape_html(chart.title + ". " + chart.say + " Arrow keys read its values; the table below has them.") +
                     "'><div class=pane><svg viewBox='0 0 1000 1000' preserveAspectRatio=none aria-hidden=true>";
  for (const double mark : marks) {
    const std::string y = fixed(kSide * (1 - mark / marks.back()));
    html += "<path class=grid d='M0 " + y + "H1000'/>";
  }
  for (size_t i = tops.size(); i-- > 0;)
    html += plot.paths(tops[i], chart.stacked && i > 0 ? &tops[i - 1] : nullptr, chart.series[i].colour,
                       chart.stacked || tops.size() == 1);
  for (const double event : chart.events)
    html += "<path class=event d='M" + fixed(kSide * plot.share_of(event)) + " 0V1000'/>";
  html +=
      "</svg><div class=cursor hidden></div><div class=read role=status hidden></div></div>" + axes(chart, marks) + "</div>";
  if (!chart.events.empty()) html += "<p class=hint><i class=dash></i>" + escape_html(chart.events_are) + "</p>";
  return html + table_of(chart) + "</section>";
}

std::string bar_chart(const BarChart& chart) {
  double most = chart.scale;
  for (const Bar& bar : chart.bars) {
    double sum = 0;
    for (const double part : bar.parts) sum = chart.stacked ? sum + part : std::max(sum, part);
    most = std::max(most, sum);
  }
  std::vector<std::pair<std::string, int>> names;
  for (size_t i = 0; i < chart.parts.size(); ++i) names.emplace_back(chart.parts[i], chart.colours[i]);
  std::vector<std::vector<std::string>> cells{{chart.rows_are}};
  cells.front().insert(cells.front().end(), chart.parts.begin(), chart.parts.end());
  std::string html = "<section class=card id=" + chart.id + ">" + head_of(chart.title, chart.say) + legend(names) +
                     "<div class='bars scroll' tabindex=0 role=img aria-label='" +
                     escape_html(chart.title + ". " + chart.say + " The table below has the numbers.") + "'>";
  for (const Bar& bar : chart.bars) {
    html += std::string("<div class='bar") + (bar.stands_out ? " out" : "") + "'><span class=name>" + escape_html(bar.name) +
            "</span><span class='track" + (chart.stacked ? "" : " apart") + "'>";
    double sum = 0;
    for (size_t i = 0; i < bar.parts.size(); ++i) {
      sum += bar.parts[i];
      html += "<i class=c" + std::to_string(chart.colours[i]) +
              " style='width:" + percent(most > 0 ? bar.parts[i] / most : 0) + "'></i>";
    }
    cells.push_back({bar.name});
    for (const double part : bar.parts) cells.back().push_back(chart.format(part));
    html += "</span><span class=value>" +
            escape_html(chart.format(chart.stacked || bar.parts.empty() ? sum : bar.parts.front())) + "</span></div>";
  }
  return html + "</div>" + data_table(cells, chart.title, false) + "</section>";
}

std::string data_table(const std::vector<std::vector<std::string>>& cells, const std::string& caption, bool open) {
  const std::string label = escape_html(caption);
  std::string html = open ? "" : "<details><summary>Numbers as a table</summary>";
  html += "<div class=scroll tabindex=0 role=region aria-label='" + label + ", table'><table><caption>" + label +
          "</caption><thead><tr>";
  for (const std::string& head : cells.front()) html += "<th scope=col>" + escape_html(head) + "</th>";
  html += "</tr></thead><tbody>";
  for (size_t row = 1; row < cells.size(); ++row) {
    html += "<tr><th scope=row>" + escape_html(cells[row].front()) + "</th>";
    for (size_t i = 1; i < cells[row].size(); ++i)
      html += (cells[row][i].size() > kLongCell ? "<td class=long>" : "<td>") + escape_html(cells[row][i]) + "</td>";
    html += "</tr>";
  }
  return html + "</tbody></table></div>" + (open ? "" : "</details>");
}

}  // namespace ddp::ddprun
