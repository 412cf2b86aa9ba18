// SPDX-License-Identifier: Apache-2.0
// A prefix and its line are one piece in the queue of their sink. A line longer than kLongLine is cut into pieces that look
// like lines; without prefixes the bytes pass unchanged instead, and so they do into files. Memory: at most kLongLine for
// each stream, and a sink that is full stops the reading, so that a rank that writes faster than the terminal waits in its
// own write(). Of a line with \r inside, such as a progress bar, a prefixed line shows what would be left on a terminal: the
// text behind the last \r that has text behind it.
// Tested by process/ddprun_output_test.sh, process/ddprun_pty_test.sh.
#include "ddprun/relay.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.hpp"
#include "ddprun/channel.hpp"
#include "os/clock.hpp"
#include "os/own_files.hpp"

namespace ddp::ddprun {
namespace {

constexpr size_t kLongLine = 1 << 20;
constexpr size_t kReadBytes = 1 << 16;
constexpr size_t kKeptLines = 20;
constexpr size_t kKeptBytes = 500;  // of each kept line
constexpr int kColours[] = {36, 32, 33, 35, 34, 96, 92, 93, 95, 94};

bool same_place(int a, int b) {
  struct stat first {
  }, second{};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

bool colours_wanted(const Sink& sink) {
  const char* no_colour = getenv("NO_COLOR");
  const char* terminal = getenv("TERM");
  return sink.terminal() && (no_colour == nullptr || *no_colour == '\0') && terminal != nullptr &&
         strcmp(terminal, "dumb") != 0;
}

std::string make_prefix(int32_t rank, bool colour) {
  const std::string text = "[" + std::to_string(rank) + "]";
  if (!colour) return text + " ";
  const int code = kColours[static_cast<size_t>(rank) % std::size(kColours)];
  return "\033[" + std::to_string(code) + "m" + text + "\033[0m ";
}

std::string_view without_returns(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Where the text begins that a terminal would show of this line.
size_t last_state(std::string_view line) {
  const auto overwritten = without_returns(line).rfind('\r');
  return overwritten == std::string_view::npos ? 0 : overwritten + 1;
}

Fd open_file(const std::string& path) {
  os::Fd file = os::open_regular_file(path, O_WRONLY | O_CREAT, 0666);
  if (!file.is_open() || ftruncate(file.get(), 0) != 0)
    throw make_error(DDP_ERROR_IO, "The file %s of --output-dir cannot be written: %s.", path.c_str(), strerror(errno));
  return Fd(file.release());
}

std::string make_folder(const std::string& parent, int32_t rank) {
  std::string path = parent + "/rank-" + std::to_string(rank);
  std::error_code cause;
  std::filesystem::create_directories(path, cause);
  if (cause) {
    throw make_error(DDP_ERROR_IO, "The folder %s of --output-dir cannot be made: %s.", path.c_str(),
                     cause.message().c_str());
  }
  return path;
}

}  // namespace

Relay::Relay(Loop& loop, const Options& options) : loop_(loop), options_(options), error_screen_(same_place(1, 2) ? 0 : 1) {
  sinks_.emplace_back(1, "stdout");
  sinks_.emplace_back(2, "stderr");
  for (auto& sink : sinks_) screens_.emplace_back(sink, options.has_prefix());
  last_lines_.resize(static_cast<size_t>(options.ranks));
  for (int32_t rank = 0; rank < options.ranks && options.writes_files(); ++rank) {
    const std::string folder = make_folder(options.output_dir, options.machines.first_rank() + rank);
    for (const char* name : {"/stdout.txt", "/stderr.txt"}) sinks_.emplace_back(open_file(folder + name), folder + name);
  }
  for (Sink& sink : sinks_)
    writable_.emplace_back(loop, sink.fd(), Ready::Whose::kShared, Ready::For::kWriting,
                           [this, &sink] { write_some(sink); });
}

void Relay::set_rank(int32_t rank, Fd out, Fd err) {
  drain(rank);
  for (Stream& stream : streams_)
    if (stream.rank == rank && stream.end.open()) end_stream(stream);
  open_streams(rank, std::move(out), std::move(err));
}

void Relay::drain(int32_t rank) {
  for (Stream& stream : streams_) {
    // A bound, because what a rank has left running may write for ever.
    for (int i = 0; i < 1024 && stream.rank == rank && stream.end.open() && read_some(stream); ++i) {
    }
  }
}

void Relay::take_reports(std::string mark, std::function<void(int32_t, std::string_view)> take) {
  reports_ = {std::move(mark), std::move(take)};
}

void Relay::report(const std::string& line) { screens_[error_screen_].raw(line + "\n"); }

void Relay::show_status(const std::string& text) { screens_[error_screen_].set_status(text, os::now_ns()); }

void Relay::open_streams(int32_t rank, Fd out, Fd err) {
  for (Fd* end : {&out, &err}) {
    const bool error = end == &err;
    Stream& stream = streams_.emplace_back();
    stream.end = std::move(*end);
    stream.rank = rank;
    if (options_.shows(rank)) {
      stream.screen = error ? error_screen_ : 0;
      const std::string prefix =
          options_.has_prefix() ? make_prefix(options_.machines.first_rank() + rank, colours_wanted(sinks_[stream.screen]))
                                : "";
      stream.number = screens_[stream.screen].add(prefix);
    }
    if (options_.writes_files()) stream.file = 2 + 2 * static_cast<size_t>(rank) + (error ? 1 : 0);
    stream.ready.emplace(loop_, stream.end.get(), Ready::Whose::kOurs, Ready::For::kReading,
                         [&stream] { stream.is_ready = true; });
  }
}

bool Relay::wants_input(const Stream& stream) const noexcept {
  return stream.end.open() && (stream.screen == kNone || !sinks_[stream.screen].full()) &&
         (stream.file == kNone || !sinks_[stream.file].full());
}

void Relay::wait() {
  for (Stream& stream : streams_)
    if (wants_input(stream)) stream.ready->wait();
  for (size_t i = 0; i < sinks_.size(); ++i)
    if (sinks_[i].pending()) writable_[i].wait();
}

void Relay::read_ready() {
  for (Stream& stream : streams_)
    if (std::exchange(stream.is_ready, false) && wants_input(stream)) read_some(stream);
}

void Relay::write_some(Sink& sink) {
  sink.write_some();
  if (const std::string complaint = sink.take_complaint(); !complaint.empty()) note(complaint);
}

int64_t Relay::due_ns() const noexcept {
  int64_t due = Screen::kNever;
  for (const auto& stream : streams_) {
    if (stream.screen != kNone && !stream.partial.empty()) due = std::min(due, screens_[stream.screen].due(stream.number));
  }
  return std::min(due, screens_[error_screen_].status_due());
}

void Relay::show_open_lines() {
  const int64_t now = os::now_ns();
  if (screens_[error_screen_].status_due() <= now && !sinks_[error_screen_].pending()) screens_[error_screen_].show_status();
  for (const auto& stream : streams_) {
    if (stream.screen == kNone || stream.partial.empty() || screens_[stream.screen].due(stream.number) > now) continue;
    if (!reports_.mark.empty() && stream.partial.find(reports_.mark.front()) != std::string::npos) {  // of a report, so far
      screens_[stream.screen].postpone(stream.number, now);
      continue;
    }
    if (sinks_[stream.screen].pending()) {  // the reader is slow, so perhaps we have not read what the rank has written
      screens_[stream.screen].postpone(stream.number, now);
      continue;
    }
    const std::string_view line = options_.has_prefix() ? without_returns(stream.partial) : std::string_view(stream.partial);
    screens_[stream.screen].show(stream.number, line, stream.bar, now);
  }
}

void Relay::typed_line() {
  for (auto& stream : streams_) {
    if (stream.screen == kNone || stream.partial.empty()) continue;
    const size_t over = screens_[stream.screen].typed(stream.number);
    if (over == 0) continue;
    remember(stream.rank, stream.partial);
    stream.partial.erase(0, over);
    stream.bar = false;
  }
}

void Relay::resize() noexcept {
  for (auto& screen : screens_) screen.resize();
  const winsize size = terminal_size(options_.prefix_width());
  for (const auto& stream : streams_) {
    if (stream.end.open()) ioctl(stream.end.get(), TIOCSWINSZ, &size);  // a pipe refuses it
  }
}

// True when there may be more.
bool Relay::read_some(Stream& stream) {
  char buffer[kReadBytes];
  const ssize_t got = read(stream.end.get(), buffer, sizeof buffer);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {  // a terminal that no process has open any more returns EIO
    end_stream(stream);
    return false;
  }
  const std::string_view data(buffer, static_cast<size_t>(got));
  if (stream.file != kNone) sinks_[stream.file].put(data);
  if (passes_bytes(stream)) screens_[stream.screen].raw(data);
  split(stream, data);
  return true;
}

bool Relay::passes_bytes(const Stream& stream) const noexcept {
  return stream.screen != kNone && reports_.mark.empty() && screens_[stream.screen].passes_bytes();
}

// The text before the report is the beginning of a line that continues after it.
bool Relay::take_report(Stream& stream, std::string_view line) {
  const size_t at = reports_.mark.empty() ? std::string_view::npos : line.find(reports_.mark);
  if (at == std::string_view::npos) return false;
  reports_.take(stream.rank, line.substr(at + reports_.mark.size()));
  const std::string before(line.substr(0, at));  // the line may be stream.partial
  stream.partial = before;
  return true;
}

void Relay::split(Stream& stream, std::string_view data) {
  for (auto end = data.find('\n'); end != std::string_view::npos; end = data.find('\n')) {
    const std::string_view rest_of_line = data.substr(0, end);
    data.remove_prefix(end + 1);
    if (stream.partial.empty()) {
      if (!take_report(stream, rest_of_line)) end_line(stream, rest_of_line, true);
    } else {
      stream.partial.append(rest_of_line);
      if (!take_report(stream, stream.partial)) end_line(stream, stream.partial, true);
    }
  }
  if (data.empty()) return;
  stream.partial.append(data);
  if (options_.has_prefix() && data.find('\r') != std::string_view::npos) drop_overwritten(stream);
  if (stream.partial.size() > kLongLine) return end_line(stream, stream.partial, false);
  if (stream.screen != kNone) screens_[stream.screen].touch(stream.number, os::now_ns());
}

void Relay::drop_overwritten(Stream& stream) {
  const size_t begin = last_state(stream.partial);
  if (begin == 0) return;
  stream.partial.erase(0, begin);
  stream.bar = true;
  if (stream.screen != kNone) screens_[stream.screen].replaced(stream.number);
}

// `line` may be stream.partial.
void Relay::end_line(Stream& stream, std::string_view line, bool ended) {
  const std::string_view state = without_returns(line).substr(last_state(line));
  if (stream.screen != kNone && !passes_bytes(stream)) {
    const bool overwritten = options_.has_prefix() && (stream.bar || state.size() < without_returns(line).size());
    screens_[stream.screen].end_line(stream.number, options_.has_prefix() ? state : line, overwritten, ended, os::now_ns());
  }
  remember(stream.rank, state);
  stream.partial.clear();
  stream.bar = false;
}

void Relay::end_stream(Stream& stream) {
  // Without prefixes the bytes pass as they are, so nothing is added to a last line that has no end.
  if (!stream.partial.empty()) end_line(stream, stream.partial, false);
  stream.ready.reset();
  stream.end.reset();
}

void Relay::remember(int32_t rank, std::string_view line) {
  auto& lines = last_lines_[static_cast<size_t>(rank)];
  lines.emplace_back(line.substr(0, kKeptBytes));
  if (line.size() > kKeptBytes) lines.back() += " ...";
  if (lines.size() > kKeptLines) lines.pop_front();
}

bool Relay::reading() const noexcept {
  return std::any_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return stream.end.open(); });
}

bool Relay::writing() const noexcept {
  return std::any_of(sinks_.begin(), sinks_.end(), [](const Sink& sink) { return sink.pending(); });
}

void Relay::close_inputs() {
  for (size_t rank = 0; rank < last_lines_.size(); ++rank) drain(static_cast<int32_t>(rank));
  for (auto& stream : streams_)
    if (stream.end.open()) end_stream(stream);
}

void Relay::note(const std::string& text) { screens_[error_screen_].note("ddprun: " + text, os::now_ns()); }

}  // namespace ddp::ddprun
