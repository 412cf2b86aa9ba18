// The output of all ranks, line by line: lines of different ranks are never mixed, each carries its rank, and the last lines
// of every rank are kept for the report.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "run/fd.hpp"
#include "run/options.hpp"
#include "run/sink.hpp"

namespace ddp::run {

class Relay {
 public:
  /// Opens the files of --output-dir. Throws IO.
  explicit Relay(const Options& options);

  /// Take over the pipes of the next rank.
  void add_rank(Fd out, Fd err);
  /// Append what to wait for, then hand the same entries to handle().
  void append_poll(std::vector<pollfd>& entries) const;
  void handle(const pollfd* entries);

  /// Is any rank's pipe still open?
  [[nodiscard]] bool reading() const noexcept;
  /// Is any line still to be written?
  [[nodiscard]] bool writing() const noexcept;
  /// Take what is in the pipes now and close them: what still holds their other ends is of no interest any more.
  void close_inputs();

  /// One of the launcher's own lines, to stderr.
  void note(const std::string& text);
  /// The last lines of a rank, oldest first, stdout and stderr in the order in which they came.
  [[nodiscard]] const std::deque<std::string>& last_lines(int32_t rank) const {
    return last_lines_[static_cast<size_t>(rank)];
  }

 private:
  struct Stream {
    Fd pipe;
    int32_t rank;
    size_t sink;
    std::string prefix;
    std::string partial;  // the line that has not ended yet
  };

  bool read_some(Stream& stream);
  void split(Stream& stream, std::string_view data);
  void emit(Stream& stream, std::string_view line, bool ended);
  void end_stream(Stream& stream);
  void remember(int32_t rank, std::string_view line);
  void add_stream(Fd pipe, int32_t rank, size_t sink);

  bool prefix_;
  bool to_files_;
  std::vector<Sink> sinks_;  // 0: stdout, 1: stderr, then one for each file
  size_t error_sink_;        // 0 when stdout and stderr are one place: a single queue keeps lines whole there too
  std::vector<Stream> streams_;
  std::vector<std::deque<std::string>> last_lines_;
};

}  // namespace ddp::run
