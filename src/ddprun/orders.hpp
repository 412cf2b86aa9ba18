// SPDX-License-Identifier: Apache-2.0
// What a ddprun that leads and one that it has started on another machine send to each other: lines that are objects of
// JSON, and pure functions. Orders are lines on the stdin of the led one. Reports are lines of its stderr that begin with a
// mark, which the leading one takes out of the output; the mark is random, so that no program writes it by chance. Bytes
// that may be anything are hexadecimal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/looks.hpp"

namespace ddp::ddprun {

/// How ranks are started.
struct Start {
  int32_t restarts = 0;  // that came before
  bool joins = false;    // others, which run
};

/// To a machine. Ranks are those of the job.
struct Order {
  enum class Kind { kStart, kFile, kOver, kSignal, kEnvironment };
  Kind kind = Kind::kOver;
  int32_t first = 0, last = 0;             // kStart: these ranks
  Start how{};                             // kStart
  std::string name{}, bytes{};             // kFile: what other ranks have written where ranks that join look
  int number = 0;                          // kSignal; 0: none, the leading one lives
  std::vector<std::string> assignments{};  // kEnvironment: NAME=VALUE for the ranks
};

/// From a machine.
struct Report {
  enum class Kind { kEnded, kLine, kFile, kLook, kPiece };
  Kind kind = Kind::kEnded;
  int32_t rank = 0;             // kEnded, kLine
  int status = 0;               // kEnded: as wait() gives it
  int64_t peak_kib = 0;         // kEnded
  std::string name{}, bytes{};  // kFile, kPiece; kLine: one of the last lines of a rank that has failed, before its end
  int64_t offset = 0;           // kPiece: of the bytes, in the file of a trace that has this name
  Look look{};                  // kLook
};

/// Without newline.
[[nodiscard]] std::string write_order(const Order& order);
[[nodiscard]] std::optional<Order> read_order(std::string_view line);
[[nodiscard]] std::string write_report(const Report& report);
[[nodiscard]] std::optional<Report> read_report(std::string_view line);

/// The mark of a job, from some random letters.
[[nodiscard]] std::string report_mark(const std::string& word);

/// "0 to 3, 7" as pairs of first and last.
[[nodiscard]] std::vector<std::pair<int32_t, int32_t>> ranges_of(std::vector<int32_t> ranks);

}  // namespace ddp::ddprun
