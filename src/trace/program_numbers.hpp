// SPDX-License-Identifier: Apache-2.0
// Numbers that the program logs by name: the last value of each, for observers outside the process. They are in the live
// page of the process (live.hpp). Without one they are in memory, so that a program meets the same limits.
// Cost: a comparison of names and two stores. Memory is allocated once, where there is no page.
// Threads: any.
// Tested by unit/trace/program_numbers_test.cpp and process/ddprun_metrics_test.sh.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "trace/live.hpp"
#include "trace/mapped_file.hpp"

namespace ddp::trace {

class ProgramNumbers {
 public:
  /// Those of this process.
  [[nodiscard]] static ProgramNumbers& instance();
  ProgramNumbers() = default;
  ProgramNumbers(const ProgramNumbers&) = delete;
  ProgramNumbers& operator=(const ProgramNumbers&) = delete;

  /// From now on they are in the live page at this path, with those that were logged before; if this process has made it.
  /// Throws what os::file_error makes.
  void attach(const std::string& page_path);
  /// May a number have this name? 1 to 63 letters of ASCII, digits, and . _ - / :
  [[nodiscard]] static bool is_name(std::string_view name) noexcept;
  /// `name` is one. False: there are ProgramNumber::kMost other names. Throws bad_alloc, the first time.
  [[nodiscard]] bool log(std::string_view name, double value);

 private:
  /// In a page, or in memory.
  struct Table {
    MappedFile page;
    int64_t made_at_ns = 0;
    std::unique_ptr<ProgramNumber[]> own;
    ProgramNumber* slots = nullptr;
  };
  [[nodiscard]] Table& table();
  [[nodiscard]] static bool put_into(Table& table, std::string_view name, double value, int64_t times) noexcept;

  std::mutex making_;                           // guards tables_
  std::vector<std::unique_ptr<Table>> tables_;  // the last is in use; threads may still be in older ones
  std::atomic<Table*> table_{nullptr};
};

}  // namespace ddp::trace
