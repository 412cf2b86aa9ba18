// A line is written when it has ended, or when its rank closes the stream (then a newline is added), so a prefix and its
// line are one piece in the queue of their sink. A line longer than kLongLine is cut into pieces that look like lines;
// without prefixes the bytes pass unchanged instead. Memory: at most kLongLine for each stream, and a sink that is full
// stops the reading, so that a rank that writes faster than the terminal waits in its own write(). Tested by
// process/ddprun_output_test.sh.
#include "run/relay.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"

namespace ddp::run {
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

Fd open_file(const std::string& path) {
  Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.open())
    throw make_error(DDP_ERROR_IO, "The file %s of --output-dir cannot be written: %s.", path.c_str(), strerror(errno));
  return file;
}

}  // namespace

Relay::Relay(const Options& options)
    : prefix_(options.prefix && options.output_dir.empty()),
      to_files_(!options.output_dir.empty()),
      error_sink_(same_place(1, 2) ? 0 : 1) {
  sinks_.emplace_back(1, "stdout");
  sinks_.emplace_back(2, "stderr");
  if (!to_files_) return;
  std::error_code cause;
  std::filesystem::create_directories(options.output_dir, cause);
  if (cause) {
    throw make_error(DDP_ERROR_IO, "The folder %s of --output-dir cannot be made: %s.", options.output_dir.c_str(),
                     cause.message().c_str());
  }
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    const std::string path = options.output_dir + "/rank-" + std::to_string(rank) + ".txt";
    sinks_.emplace_back(open_file(path), path);
  }
}

void Relay::add_rank(Fd out, Fd err) {
  const auto rank = static_cast<int32_t>(last_lines_.size());
  last_lines_.emplace_back();
  const size_t file = 2 + static_cast<size_t>(rank);
  add_stream(std::move(out), rank, to_files_ ? file : 0);
  add_stream(std::move(err), rank, to_files_ ? file : error_sink_);
}

void Relay::add_stream(Fd pipe, int32_t rank, size_t sink) {
  std::string prefix = prefix_ ? make_prefix(rank, colours_wanted(sinks_[sink])) : "";
  streams_.push_back({std::move(pipe), rank, sink, std::move(prefix), ""});
}

void Relay::append_poll(std::vector<pollfd>& entries) const {
  for (const auto& stream : streams_) {
    const bool take = stream.pipe.open() && !sinks_[stream.sink].full();
    entries.push_back({take ? stream.pipe.get() : -1, POLLIN, 0});
  }
  for (const auto& sink : sinks_) {
    pollfd entry = sink.poll_entry();
    if (entry.events == 0) entry.fd = -1;  // or poll would return at once for a reader that has gone
    entries.push_back(entry);
  }
}

void Relay::handle(const pollfd* entries) {
  for (auto& stream : streams_) {
    if ((entries++)->revents != 0) read_some(stream);
  }
  for (auto& sink : sinks_) {
    if ((entries++)->revents != 0) sink.write_some();
  }
  for (auto& sink : sinks_) {
    const std::string complaint = sink.take_complaint();
    if (!complaint.empty()) sinks_[error_sink_].put(complaint);
  }
}

// True when there may be more.
bool Relay::read_some(Stream& stream) {
  char buffer[kReadBytes];
  const ssize_t got = read(stream.pipe.get(), buffer, sizeof buffer);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    end_stream(stream);
    return false;
  }
  split(stream, {buffer, static_cast<size_t>(got)});
  return true;
}

void Relay::split(Stream& stream, std::string_view data) {
  for (auto end = data.find('\n'); end != std::string_view::npos; end = data.find('\n')) {
    const std::string_view rest_of_line = data.substr(0, end);
    data.remove_prefix(end + 1);
    if (stream.partial.empty()) {
      emit(stream, rest_of_line, true);
    } else {
      stream.partial.append(rest_of_line);
      emit(stream, stream.partial, true);
      stream.partial.clear();
    }
  }
  stream.partial.append(data);
  if (stream.partial.size() > kLongLine) {
    emit(stream, stream.partial, false);
    stream.partial.clear();
  }
}

void Relay::emit(Stream& stream, std::string_view line, bool ended) {
  Sink& sink = sinks_[stream.sink];
  sink.put(stream.prefix);
  sink.put(line);
  if (ended || prefix_) sink.put("\n");
  remember(stream.rank, line);
}

void Relay::end_stream(Stream& stream) {
  // Without prefixes the bytes pass as they are, so nothing is added to a last line that has no end.
  if (!stream.partial.empty()) emit(stream, stream.partial, prefix_);
  stream.partial.clear();
  stream.pipe.reset();
}

void Relay::remember(int32_t rank, std::string_view line) {
  auto& lines = last_lines_[static_cast<size_t>(rank)];
  lines.emplace_back(line.substr(0, kKeptBytes));
  if (line.size() > kKeptBytes) lines.back() += " ...";
  if (lines.size() > kKeptLines) lines.pop_front();
}

bool Relay::reading() const noexcept {
  for (const auto& stream : streams_) {
    if (stream.pipe.open()) return true;
  }
  return false;
}

bool Relay::writing() const noexcept {
  for (const auto& sink : sinks_) {
    if (sink.pending()) return true;
  }
  return false;
}

void Relay::close_inputs() {
  for (auto& stream : streams_) {
    // A bound, because whoever holds the other end may write for ever.
    for (int i = 0; i < 64 && stream.pipe.open() && read_some(stream); ++i) {
    }
    if (stream.pipe.open()) end_stream(stream);
  }
}

void Relay::note(const std::string& text) { sinks_[error_sink_].put("ddprun: " + text + "\n"); }

}  // namespace ddp::run
