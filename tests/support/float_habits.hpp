// SPDX-License-Identifier: Apache-2.0
// Programs with floating-point settings of their own, and what one of them gets from its calls.
#pragma once

#include <cfenv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddp/ddp.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ddp::test {

enum class Habit { kOrdinary, kTraps, kFlushes };

/// What a program can set, as numbers.
struct Settings {
  int traps = fegetexcept();
  int rounding = fegetround();
#if defined(__x86_64__)
  unsigned control = _mm_getcsr() & 0xffc0U;
#else
  unsigned control = 0;
#endif
  bool operator==(const Settings&) const = default;
};

inline void take_up(Habit habit) {
  if (habit == Habit::kTraps) feenableexcept(FE_ALL_EXCEPT);
  if (habit != Habit::kFlushes) return;
  fesetround(FE_UPWARD);
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040U);  // results and operands
#endif
}

/// A rank's run: its actions and results, as bytes.
class HabitRun {
 public:
  HabitRun(Habit habit, int of_rank) : rank(of_rank), habit_(habit) {}

  /// The status goes into the result, so that errors are compared too.
  void call(ddp_status status, const char* what) {
    if (!(Settings() == settings_)) throw std::runtime_error(std::string(what) + " changed the program's settings");
    keep(&status, sizeof status);
    said += std::string(what) + ": " + ddp_status_name(status) + "\n";
  }
  void keep(const void* data, size_t bytes) {
    const auto* first = static_cast<const unsigned char*>(data);
    result.insert(result.end(), first, first + bytes);
  }
  void begin() {
    take_up(habit_);
    settings_ = Settings();
  }
  [[nodiscard]] const Settings& settings() const { return settings_; }

  int rank;
  std::vector<unsigned char> result;
  std::string said;

 private:
  Habit habit_;
  Settings settings_;
};
#define CALL(run, call_) (run).call(call_, #call_)

}  // namespace ddp::test
