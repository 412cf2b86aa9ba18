// SPDX-License-Identifier: Apache-2.0
// Tested by process/ddprun_hosts_test.sh.
#include "ddprun/lead.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/error.hpp"
#include "ddprun/launch.hpp"

namespace ddp::ddprun {
namespace {

constexpr int64_t kHeaderMs = 60'000;

bool travels(std::string_view assignment) {
  constexpr std::array<std::string_view, 4> kFamilies{"DDP_", "NCCL_", "OMP_", "GLOO_"};
  const bool ours = assignment.starts_with("DDP_TOKEN") || assignment.starts_with("DDP_JOIN") ||
                    assignment.starts_with("DDP_WATCH_DIR");  // sent apart; of another job
  return !ours &&
         std::any_of(kFamilies.begin(), kFamilies.end(), [&](auto family) { return assignment.starts_with(family); });
}

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      throw make_error(DDP_ERROR_INVALID_ARGUMENT, "The variables for the ranks (%zu bytes) do not fit into a pipe.",
                       text.size());
    done += static_cast<size_t>(written);
  }
}

/// A value may have lines.
std::string one_line(const std::string& assignment) {
  std::string line;
  for (const char c : assignment) {
    if (c == '\n' || c == '\\') line += '\\';
    line += c == '\n' ? 'n' : c;
  }
  return line;
}

std::string from_line(const std::string& line) {
  std::string assignment;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool escaped = line[i] == '\\' && i + 1 < line.size();
    if (escaped) ++i;
    assignment += escaped && line[i] == 'n' ? '\n' : line[i];
  }
  return assignment;
}

}  // namespace

int Leads::open(size_t machine, const std::string& header) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw make_error(DDP_ERROR_OUT_OF_MEMORY, "No pipe could be made: %s.", strerror(errno));
  theirs_ = Fd(ends[0]);
  if (ours_.size() <= machine) ours_.resize(machine + 1);
  ours_[machine] = Fd(ends[1]);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);  // no process reads yet, so a write that does not fit must not wait
  write_all(ends[1], header);
  return theirs_.get();
}

// A pipe that is full or closed belongs to a machine that does not listen any more.
void Leads::say(size_t machine, const std::string& line) noexcept {
  if (machine >= ours_.size() || !ours_[machine].open()) return;
  const std::string whole = line + "\n";  // short enough to be written whole or not at all
  static_cast<void>(!write(ours_[machine].get(), whole.data(), whole.size()));
}

void Leads::say_to_all(const std::string& line) noexcept {
  for (size_t machine = 0; machine < ours_.size(); ++machine) say(machine, line);
}

void Leads::beat() noexcept {
  if (ours_.empty() || !next_.passed()) return;
  signal(0);
  next_ = os::Deadline::in_ms(beat_ms_);
}

std::string lead_header(const std::vector<std::string>& environment, const std::vector<std::string>& assignments,
                        const std::string& token) {
  std::string header;
  const auto add = [&](const std::string& assignment) { header += one_line(assignment) + "\n"; };
  for (const std::string& assignment : environment)
    if (travels(assignment)) add(assignment);
  for (const std::string& assignment : assignments) add(assignment);
  add("DDP_TOKEN=" + token);
  return header + "\n";
}

// Byte by byte: what follows belongs to handle().
void Leash::read_environment() {
  const os::Deadline limit = os::Deadline::in_ms(kHeaderMs);
  std::string line;
  for (;;) {
    pollfd entry{0, POLLIN, 0};
    char byte = 0;
    const int ready = poll(&entry, 1, static_cast<int>(limit.left_ms()));
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t got = ready > 0 ? read(0, &byte, 1) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw ExitError{kExitInternal, "The launcher was gone before it said what the ranks need."};
    if (byte != '\n') {
      line += byte;
      continue;
    }
    if (line.empty()) return;
    const std::string assignment = from_line(std::exchange(line, ""));
    const size_t equals = assignment.find('=');
    if (equals != std::string::npos && equals > 0)
      setenv(assignment.substr(0, equals).c_str(), assignment.substr(equals + 1).c_str(),
             1);  // NOLINT(concurrency-mt-unsafe)
  }
}

void Leash::append_poll(std::vector<pollfd>& entries) const { entries.push_back({led_ ? 0 : -1, POLLIN, 0}); }

void Leash::handle(const pollfd& entry, const Ears& ears) {
  if (!led_) return;
  if (entry.revents == 0) {
    if (silent_.is_never() && !stopped_) silent_ = os::Deadline::in_ms(silence_ms_);
    if (silent_.passed()) lose(ears);
    return;
  }
  char buffer[4096];
  const ssize_t got = read(0, buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) return lose(ears);
  silent_ = os::Deadline::in_ms(silence_ms_);
  waiting_.append(buffer, static_cast<size_t>(got));
  for (size_t end = waiting_.find('\n'); end != std::string::npos; end = waiting_.find('\n')) {
    const std::string line = waiting_.substr(0, end);
    waiting_.erase(0, end + 1);
    hear(line, ears);
  }
}

void Leash::hear(const std::string& line, const Ears& ears) {
  if (line.empty() || line.front() < '0' || line.front() > '9') return ears.on_order(line);
  const int number = std::atoi(line.c_str());
  stopped_ = number == SIGSTOP;
  if (stopped_) silent_ = os::Deadline::never();
  if (number > 0 && number < 65) ears.on_signal(number);
}

void Leash::lose(const Ears& ears) {
  led_ = false;
  ears.on_loss();
}

}  // namespace ddp::ddprun
