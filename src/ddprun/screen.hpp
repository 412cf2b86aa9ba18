// SPDX-License-Identifier: Apache-2.0
// One place (our stdout or stderr) where the lines of several streams meet. A line is written when it has ended; a line that
// has not ended is shown after a moment, and continued or written once more when its end has come.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/sink.hpp"

namespace ddp::ddprun {

class Screen {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  /// `prefixed`: each line begins with its stream's prefix. The sink must outlive the screen.
  Screen(Sink& sink, bool prefixed);

  /// A new stream of lines. Returns its number.
  size_t add(std::string prefix);
  /// True for one stream without prefixes: its bytes are written as they come, by raw(), and nothing else is called.
  [[nodiscard]] bool passes_bytes() const noexcept { return !prefixed_ && views_.size() == 1; }
  void raw(std::string_view data) { sink_->put(data); }

  /// A line is over. `ended`: it had a newline. `bar`: see show().
  void end_line(size_t stream, std::string_view line, bool bar, bool ended, int64_t now);
  /// The stream has bytes that belong to a line without end: show them soon.
  void touch(size_t stream, int64_t now) noexcept;
  /// Show them a moment later.
  void postpone(size_t stream, int64_t now) noexcept;
  /// What was shown of the stream's line is out of date: it was overwritten with \r.
  void replaced(size_t stream) noexcept;
  /// When show() is due for this stream; kNever.
  [[nodiscard]] int64_t due(size_t stream) const noexcept { return views_[stream].due_ns; }
  /// Show an unfinished line. `bar`: it overwrites itself with \r, and this is its present text.
  void show(size_t stream, std::string_view line, bool bar, int64_t now);
  /// A newline was typed on the terminal after the unfinished line. Returns how many bytes of this stream's line it has
  /// ended; 0 for the other streams.
  size_t typed(size_t stream) noexcept;
  /// The text of the last row of a terminal while it is otherwise free; "": nothing. Has no effect if rows cannot be erased.
  void set_status(std::string_view text, int64_t now);
  /// When show_status() is due; kNever.
  [[nodiscard]] int64_t status_due() const noexcept { return open_ < 0 ? status_.due_ns : kNever; }
  void show_status();
  /// A line of ddprun's own.
  void note(std::string_view line, int64_t now);
  /// The terminal's width has changed.
  void resize() noexcept;

 private:
  struct View {
    std::string prefix;
    size_t shown = 0;    // bytes of the line that were written
    bool whole = false;  // and all of them stand on the last row
    int64_t due_ns = kNever;
    int64_t next_bar_ns = 0;  // outside a terminal
  };

  struct Status {
    std::string text{};
    bool shown = false;
    int64_t due_ns = kNever;
  };

  void close_open(int64_t now);
  [[nodiscard]] int64_t moment_ns() const noexcept;

  Sink* sink_;
  bool prefixed_;
  bool erases_;         // a terminal whose last row can be erased
  int columns_ = 0;     // of that terminal
  int64_t open_ = -1;   // the stream whose unfinished line is on the last row
  int64_t since_ = 0;   // since then
  int open_width_ = 0;  // columns that it takes
  std::vector<View> views_;
  Status status_;
};

}  // namespace ddp::ddprun
