// SPDX-License-Identifier: Apache-2.0
// Numbers as a reader likes them: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::ddprun {

inline constexpr int64_t kMiB = int64_t{1} << 20;

/// Three digits that matter: "1,240", "12.3", "0.045".
[[nodiscard]] std::string format_number(double number);
/// Four digits that matter, of any size: "0.0003", "1.235e+06", "nan".
[[nodiscard]] std::string format_value(double value);
/// "94 %".
[[nodiscard]] std::string format_share(double share);
/// "0.4 s", "12 s", "1:05 min", "2:03:00 h".
[[nodiscard]] std::string format_time(double seconds);
/// For a mark of an axis: the same without what is plain there, "1:05".
[[nodiscard]] std::string format_time_mark(double seconds);
/// "12.3 ms", "45 µs".
[[nodiscard]] std::string format_ms(double ms);
/// "25 MiB".
[[nodiscard]] std::string format_bytes(double bytes);
[[nodiscard]] std::string format_kib(int64_t kib);

/// Round marks of an axis from 0 to at least `most`, at most `count` steps: the last is the axis's end.
[[nodiscard]] std::vector<double> axis_marks(double most, int count);
/// From at most `least` to at least `most`, whatever their signs; at most `count` + 1 steps.
[[nodiscard]] std::vector<double> axis_marks_between(double least, double most, int count);
/// The same for times in seconds, but none beyond `most`.
[[nodiscard]] std::vector<double> time_marks(double most, int count);

}  // namespace ddp::ddprun
