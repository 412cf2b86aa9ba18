// What every optimizer keeps besides its moments: the learning rate, each parameter's group (weight decay, factor on the rate), and how many
// steps each parameter has taken. A parameter that no rank used keeps its count.
// Threads: one at a time.
// Tested by unit/update/schedule_test.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "param/table.hpp"
#include "update/fields.hpp"

namespace ddp {

class Schedule {
 public:
  struct Group {
    double weight_decay = 0;
    double rate_scale = 1;
  };

  explicit Schedule(double rate) : rate_(rate) {}

  void set_rate(double rate);
  [[nodiscard]] double rate() const noexcept { return rate_; }
  void set_group(int32_t index, double weight_decay, double rate_scale);
  /// The parameter's group, or the optimizer's own decay and a factor of 1.
  [[nodiscard]] Group group(int32_t index, double weight_decay) const noexcept;

  /// Count a step of a parameter; returns how many it has taken with this one.
  int64_t count_step(int32_t index);
  [[nodiscard]] int64_t steps_of(int32_t index) const noexcept;
  /// Calls of step.
  void count_call() noexcept { ++calls_; }
  [[nodiscard]] int64_t calls() const noexcept { return calls_; }

  void write(Fields& fields, const Table& table) const;
  /// A schedule read from fields; throws like read_double.
  [[nodiscard]] static Schedule read(const Fields& fields, const Table& table);

 private:
  double rate_;
  int64_t calls_ = 0;
  std::vector<int64_t> steps_;                 // by parameter; shorter than the table: zeros
  std::vector<std::optional<Group>> groups_;   // by parameter; shorter than the table: none
};

/// Throws INVALID_ARGUMENT: "rate is -1; it must be 0 or more".
void check_not_negative(double value, const char* name);
/// Throws INVALID_ARGUMENT unless 0 <= value < 1.
void check_fraction(double value, const char* name);

}  // namespace ddp
