// SPDX-License-Identifier: Apache-2.0
// The output of all ranks: read from their channels, split into lines, written to our own stdout and stderr (Screen) and to
// files. The last lines of every rank are kept for the report.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/fd.hpp"
#include "ddprun/loop.hpp"
#include "ddprun/options.hpp"
#include "ddprun/screen.hpp"
#include "ddprun/sink.hpp"

namespace ddp::ddprun {

class Relay {
 public:
  /// Opens the files of --output-dir. Throws IO.
  Relay(Loop& loop, const Options& options);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// Take over the channels of a process here; when it was started again, replacing its former ones.
  void set_rank(int32_t rank, Fd out, Fd err);
  /// Take what its channels hold now.
  void drain(int32_t rank);
  /// The rest of a line behind this mark is no output, but given away.
  void take_reports(std::string mark, std::function<void(int32_t, std::string_view)> take);
  /// The loop waits for what can be read and written next; then call read_ready().
  void wait();
  /// Read what has come, always in the same order: what a rank has written to stdout and then to stderr stays in that order.
  void read_ready();
  /// When show_open_lines() has something to do; Screen::kNever.
  [[nodiscard]] int64_t due_ns() const noexcept;
  /// Show unfinished lines that have not changed for a moment.
  void show_open_lines();
  /// The user has typed a newline after the present text on the terminal.
  void typed_line();
  /// The terminal's width has changed: the ranks' terminals follow.
  void resize() noexcept;

  /// Is any rank's channel still open?
  [[nodiscard]] bool reading() const noexcept;
  /// Is any line still to be written?
  [[nodiscard]] bool writing() const noexcept;
  /// Take what is in the channels now and close them: what still holds their other ends is of no interest any more.
  void close_inputs();

  /// The text of the last row of the terminal at intervals, when no rank uses that row; "": nothing. Has no effect without a
  /// terminal.
  void show_status(const std::string& text);
  /// A line to stderr as it is, and at once behind what a rank has not ended.
  void report(const std::string& line);
  /// One of the launcher's own lines, to stderr.
  void note(const std::string& text);
  /// The last lines of a rank, oldest first, stdout and stderr in the order in which they came.
  [[nodiscard]] const std::deque<std::string>& last_lines(int32_t rank) const {
    return last_lines_[static_cast<size_t>(rank)];
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  struct Stream {
    Fd end{};
    int32_t rank = 0;
    size_t screen = kNone;  // none: this rank is not shown
    size_t number = 0;      // of the stream on its screen
    size_t file = kNone;    // sink
    std::string partial;  // the line that has not ended yet; with prefixes, of a line that overwrites itself the last state
    bool bar = false;     // it has overwritten itself with \r
    std::optional<Ready> ready{};
    bool is_ready = false;
  };

  bool read_some(Stream& stream);
  void split(Stream& stream, std::string_view data);
  void end_line(Stream& stream, std::string_view line, bool ended);
  void end_stream(Stream& stream);
  void drop_overwritten(Stream& stream);
  [[nodiscard]] bool passes_bytes(const Stream& stream) const noexcept;
  [[nodiscard]] bool take_report(Stream& stream, std::string_view line);
  void open_streams(int32_t rank, Fd out, Fd err);
  void remember(int32_t rank, std::string_view line);
  [[nodiscard]] bool wants_input(const Stream& stream) const noexcept;

  void write_some(Sink& sink);

  Loop& loop_;
  const Options& options_;
  std::deque<Sink> sinks_;       // 0: stdout, 1: stderr, then the files; deques, because others point into them
  std::deque<Ready> writable_;   // of the sinks
  std::vector<Screen> screens_;  // of sinks 0 and 1
  size_t error_screen_;          // 0 when stdout and stderr are one place: a single queue keeps lines whole there too
  std::deque<Stream> streams_;
  std::vector<std::deque<std::string>> last_lines_;
  struct Reports {
    std::string mark{};  // "": there are none
    std::function<void(int32_t, std::string_view)> take{};
  } reports_;
};

}  // namespace ddp::ddprun
