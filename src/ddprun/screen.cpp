// SPDX-License-Identifier: Apache-2.0
// On a terminal an unfinished line is on the last row only until something else is written: the row is erased, and the
// line appears again a moment later. With several of them each has the row for a second. So progress bars of many ranks take
// one row, and the lines above are whole. Elsewhere (file, pipe, TERM=dumb) nothing can be erased. A line that was shown in
// part and then interrupted by another is written once more, whole, when it ends, unless it is long; a bar is written as a
// line now and then, and when it ends.
// Tested by process/ddprun_pty_test.sh.
#include "ddprun/screen.hpp"

#include <sys/ioctl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ddprun/channel.hpp"

namespace ddp::ddprun {
namespace {

constexpr int64_t kMomentNs = 200'000'000;      // until a line without end is shown
constexpr int64_t kLongMomentNs = 500'000'000;  // where it cannot be erased: a slow writer's line should stay whole
constexpr int64_t kTurnNs = 1'000'000'000;      // for which it keeps the last row of a terminal to itself
constexpr int64_t kBarNs = 5'000'000'000;       // between two states of a bar, where nothing can be erased
constexpr size_t kRepeatBytes = 1000;           // a longer line is continued instead of written once more
constexpr std::string_view kErase = "\r\033[K";

bool can_erase(const Sink& sink) {
  const char* terminal = getenv("TERM");
  return sink.terminal() && terminal != nullptr && strcmp(terminal, "dumb") != 0;
}

// Columns that a text takes: code points of UTF-8, without escape sequences such as colours.
int width_of(std::string_view text) {
  int width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\033' && i + 1 < text.size() && text[i + 1] == '[') {
      for (i += 2; i < text.size() && (text[i] < '@' || text[i] > '~');) ++i;
    } else if (byte == '\t') {
      width += 8;
    } else if (byte >= 0x20 && (byte & 0xc0) != 0x80) {
      ++width;
    }
  }
  return width;
}

}  // namespace

Screen::Screen(Sink& sink, bool prefixed) : sink_(&sink), prefixed_(prefixed), erases_(prefixed && can_erase(sink)) {
  resize();
}

void Screen::resize() noexcept { columns_ = terminal_size(0).ws_col; }

int64_t Screen::moment_ns() const noexcept { return erases_ ? kMomentNs : kLongMomentNs; }

size_t Screen::add(std::string prefix) {
  views_.push_back({std::move(prefix)});
  return views_.size() - 1;
}

void Screen::touch(size_t stream, int64_t now) noexcept {
  View& view = views_[stream];
  // Without prefixes a line must not be broken, so others would have to wait for its end: only a terminal shows it early.
  if (view.due_ns == kNever && (prefixed_ || sink_->terminal())) view.due_ns = now + moment_ns();
}

void Screen::postpone(size_t stream, int64_t now) noexcept { views_[stream].due_ns = now + moment_ns(); }

void Screen::replaced(size_t stream) noexcept {
  views_[stream].shown = 0;
  views_[stream].whole = false;
}

void Screen::end_line(size_t stream, std::string_view line, bool bar, bool ended, int64_t now) {
  View& view = views_[stream];
  const bool newline = ended || prefixed_;
  if (open_ == static_cast<int64_t>(stream) && !bar && (view.whole || !prefixed_)) {
    sink_->put(line.substr(view.shown));
    if (newline) sink_->put("\n");
    open_ = -1;
  } else if (bar && !erases_ && view.shown > 0 && view.shown == line.size()) {
    // Its last state stays there as a line.
  } else {
    close_open(now);
    const bool go_on = !prefixed_ || line.size() > kRepeatBytes;
    sink_->put(view.prefix);
    sink_->put(line.substr(go_on ? view.shown : 0));
    if (newline) sink_->put("\n");
  }
  view.shown = 0;
  view.whole = false;
  view.due_ns = kNever;
  view.next_bar_ns = 0;
}

void Screen::show(size_t stream, std::string_view line, bool bar, int64_t now) {
  View& view = views_[stream];
  view.due_ns = kNever;
  if (view.shown >= line.size()) return;
  const bool mine = open_ == static_cast<int64_t>(stream);
  if (erases_ && open_ >= 0 && !mine && now < since_ + kTurnNs) {
    view.due_ns = since_ + kTurnNs;
    return;
  }
  if (bar && !erases_) {
    if (now < view.next_bar_ns) {
      view.due_ns = view.next_bar_ns;
      return;
    }
    close_open(now);
    sink_->put(view.prefix);
    sink_->put(line);
    sink_->put("\n");
    view.shown = line.size();
    view.next_bar_ns = now + kBarNs;
    return;
  }
  if (!mine || bar) {
    const int64_t since = mine ? since_ : now;  // a bar that changes does not keep the row for itself
    close_open(now);
    view.due_ns = kNever;
    view.whole = view.shown == 0;
    open_ = static_cast<int64_t>(stream);
    since_ = since;
    open_width_ = width_of(view.prefix);
    sink_->put(view.prefix);
  }
  sink_->put(line.substr(view.shown));
  open_width_ += width_of(line.substr(view.shown));
  view.shown = line.size();
}

// What follows begins on a row of its own.
void Screen::close_open(int64_t now) {
  if (status_.shown) {
    sink_->put(kErase);
    status_.shown = false;
    status_.due_ns = now + moment_ns();
  }
  if (open_ < 0) return;
  View& view = views_[static_cast<size_t>(open_)];
  open_ = -1;
  view.whole = false;
  if (erases_ && open_width_ < columns_) {
    sink_->put(kErase);
    view.shown = 0;
    view.due_ns = now + moment_ns();
  } else {
    sink_->put("\n");
  }
}

size_t Screen::typed(size_t stream) noexcept {
  if (!sink_->terminal() || open_ != static_cast<int64_t>(stream)) return 0;
  const size_t shown = views_[stream].shown;
  replaced(stream);
  open_ = -1;
  return shown;
}

void Screen::set_status(std::string_view text, int64_t now) {
  if (!erases_ || text == status_.text) return;
  status_.text = text.substr(0, static_cast<size_t>(std::max(columns_ - 1, 0)));
  if (status_.shown) return show_status();
  if (status_.due_ns == kNever) status_.due_ns = now;
}

void Screen::show_status() {
  if (status_.shown) sink_->put(kErase);
  sink_->put(status_.text);
  status_.shown = !status_.text.empty();
  status_.due_ns = kNever;
}

void Screen::note(std::string_view line, int64_t now) {
  close_open(now);
  sink_->put(line);
  sink_->put("\n");
}

}  // namespace ddp::ddprun
