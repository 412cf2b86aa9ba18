// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/page_test.cpp.
#include "ddprun/numbers.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace ddp::ddprun {
namespace {

std::string print(const char* format, double number) {
  char text[64];
  snprintf(text, sizeof text, format, number);
  return text;
}

}  // namespace

std::string format_number(double number) {
  const double size = std::fabs(number);
  if (size == 0) return "0";
  if (size < 100) {
    std::string text = print(size < 0.0995 ? "%.3f" : size < 9.95 ? "%.2f" : "%.1f", number);
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
    return text == "-0" ? "0" : text;
  }
  std::string text = print("%.0f", number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string format_value(double value) { return print("%.4g", value); }

std::string format_share(double share) {
  const double percent = 100 * share;
  return (percent > 0 && percent < 9.95 ? print("%.1f", percent) : print("%.0f", percent)) + " %";
}

std::string format_time(double seconds) {
  if (seconds < 60) return format_number(seconds) + " s";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  char text[64];
  if (hours > 0) {
    snprintf(text, sizeof text, "%lld:%02lld:%02lld h", static_cast<long long>(hours), static_cast<long long>(minutes),
             static_cast<long long>(rest));
  } else {
    snprintf(text, sizeof text, "%lld:%02lld min", static_cast<long long>(minutes), static_cast<long long>(rest));
  }
  return text;
}

std::string format_time_mark(double seconds) {
  const std::string text = format_time(seconds);
  return seconds < 60 ? text : text.substr(0, text.find(' '));
}

std::string format_ms(double ms) {
  if (ms >= 1000) return format_time(ms * 1e-3);
  return ms >= 1 || ms == 0 ? format_number(ms) + " ms" : format_number(std::round(ms * 1e4) / 10) + " µs";
}

std::string format_bytes(double bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return format_number(bytes) + " " + units[unit];
}

std::string format_kib(int64_t kib) { return format_bytes(static_cast<double>(kib) * 1024); }

std::vector<double> axis_marks(double most, int count) {
  if (!(most > 0)) most = 1;
  const double unit = std::pow(10, std::floor(std::log10(most / count)));
  double step = 10 * unit;
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (factor * unit * count >= most) {
      step = factor * unit;
      break;
    }
  std::vector<double> marks{0};
  while (marks.back() < most * (1 - 1e-9)) marks.push_back(step * static_cast<double>(marks.size()));
  return marks;
}

std::vector<double> axis_marks_between(double least, double most, int count) {
  if (least >= 0) return axis_marks(most, count);
  const double step = axis_marks(std::max(most, 0.0) - least, count)[1];
  std::vector<double> marks;
  for (double at = std::floor(least / step); marks.empty() || marks.back() < most - step * 1e-9; ++at)
    marks.push_back(at * step);
  if (marks.size() == 1) marks.push_back(marks.front() + step);
  return marks;
}

std::vector<double> time_marks(double most, int count) {
  double step = 0.1;
  for (const double each : {0.1,  0.2,  0.5,  1.,    2.,    5.,    10.,    15.,    30.,    60.,   120.,
                            300., 600., 900., 1800., 3600., 7200., 14400., 21600., 43200., 86400.}) {
    step = each;
    if (step * count >= most) break;
  }
  while (step * count < most) step += 86400;
  std::vector<double> marks;
  for (double at = 0; at <= most; at = step * static_cast<double>(marks.size())) marks.push_back(at);
  return marks;
}

}  // namespace ddp::ddprun
