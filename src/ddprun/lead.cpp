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
#include <iterator>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "ddprun/launch.hpp"

namespace ddp::ddprun {
namespace {

constexpr int64_t kHeaderMs = 60'000;
constexpr size_t kMostWaiting = 1 << 22;  // bytes that a machine has not read

bool is_for_ranks(std::string_view assignment) {
  constexpr std::array<std::string_view, 4> kFamilies{"DDP_", "NCCL_", "OMP_", "GLOO_"};
  const bool ours = assignment.starts_with("DDP_TOKEN") || assignment.starts_with("DDP_JOIN") ||
                    assignment.starts_with("DDP_WATCH_DIR");  // sent apart; of another job
  return !ours &&
         std::any_of(kFamilies.begin(), kFamilies.end(), [&](auto family) { return assignment.starts_with(family); });
}

}  // namespace

int Leads::open(size_t machine, const std::string& first) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw make_error(DDP_ERROR_OUT_OF_MEMORY, "No pipe could be made: %s.", strerror(errno));
  theirs_ = Fd(ends[0]);
  if (machines_.size() <= machine) machines_.resize(machine + 1);
  Machine& opened = machines_[machine];
  opened.close();
  opened.end = Fd(ends[1]);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  opened.ready.emplace(loop_, ends[1], Ready::Whose::kOurs, Ready::For::kWriting, [&opened] { opened.write_some(); });
  put(opened, first);
  return theirs_.get();
}

void Leads::put(Machine& machine, const std::string& line) {
  if (!machine.end.open() || machine.queue.size() > kMostWaiting) return;
  machine.queue += line + "\n";
  machine.write_some();
}

void Leads::give(size_t machine, const Order& order) {
  if (machine < machines_.size()) put(machines_[machine], write_order(order));
}

void Leads::give_all(const Order& order) {
  for (size_t machine = 0; machine < machines_.size(); ++machine) give(machine, order);
}

void Leads::signal(int number) {
  Order order{Order::Kind::kSignal};
  order.number = number;
  give_all(order);
}

void Leads::beat() {
  if (machines_.empty() || !next_.passed()) return;
  signal(0);
  next_ = os::Deadline::in_ms(beat_ms_);
}

void Leads::wait() {
  for (Machine& machine : machines_)
    if (!machine.queue.empty()) machine.ready->wait();
}

void Leads::Machine::write_some() {
  if (queue.empty()) return;
  const ssize_t written = write(end.get(), queue.data(), queue.size());
  if (written > 0) queue.erase(0, static_cast<size_t>(written));
  if (written < 0 && errno != EAGAIN && errno != EINTR) close();  // nobody reads any more
}

void Leads::Machine::close() noexcept {
  ready.reset();
  end.reset();
  queue.clear();
}

std::string lead_header(const std::vector<std::string>& environment, const std::vector<std::string>& assignments,
                        const std::string& token) {
  Order order{Order::Kind::kEnvironment};
  std::copy_if(environment.begin(), environment.end(), std::back_inserter(order.assignments), is_for_ranks);
  order.assignments.insert(order.assignments.end(), assignments.begin(), assignments.end());
  order.assignments.push_back("DDP_TOKEN=" + token);
  return write_order(order);
}

// Byte by byte: what follows belongs to read_some().
void Leash::read_environment() {
  const os::Deadline limit = os::Deadline::in_ms(kHeaderMs);
  Loop loop;
  std::string line;
  bool whole = false, gone = false;
  Ready ready(loop, 0, Ready::Whose::kShared, Ready::For::kReading, [&] {
    char byte = 0;
    const ssize_t got = read(0, &byte, 1);
    gone = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
    whole = got > 0 && byte == '\n';
    if (got > 0 && !whole) line += byte;
  });
  while (!whole && !gone && !limit.passed()) {
    ready.wait();
    loop.wait(limit.left_ms());
  }
  if (!whole) throw ExitError{kExitInternal, "The launcher was gone before it said what the ranks need."};
  const std::optional<Order> order = read_order(line);
  if (!order.has_value() || order->kind != Order::Kind::kEnvironment)
    throw ExitError{kExitInternal,
                    "The launcher has sent something else than variables for the ranks. All hosts need the same ddprun."};
  for (const std::string& assignment : order->assignments) {
    const size_t equals = assignment.find('=');
    if (equals != std::string::npos && equals > 0)
      setenv(assignment.substr(0, equals).c_str(), assignment.substr(equals + 1).c_str(),
             1);  // NOLINT(concurrency-mt-unsafe)
  }
}

Leash::Leash(Loop& loop, bool led, double silence_s, Ears ears)
    : led_(led), silence_ms_(static_cast<int64_t>(silence_s * 1e3)), ears_(std::move(ears)) {
  if (led) ready_.emplace(loop, 0, Ready::Whose::kShared, Ready::For::kReading, [this] { read_some(); });
}

void Leash::wait() {
  if (led_) ready_->wait();
}

void Leash::check_silence() {
  if (!led_) return;
  if (silent_.is_never() && !stopped_) silent_ = os::Deadline::in_ms(silence_ms_);
  if (silent_.passed()) lose();
}

void Leash::read_some() {
  if (!led_) return;
  char buffer[4096];
  const ssize_t got = read(0, buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) return lose();
  silent_ = os::Deadline::in_ms(silence_ms_);
  waiting_.append(buffer, static_cast<size_t>(got));
  for (size_t end = waiting_.find('\n'); end != std::string::npos; end = waiting_.find('\n')) {
    const std::optional<Order> order = read_order(std::string_view(waiting_).substr(0, end));
    waiting_.erase(0, end + 1);
    if (order.has_value()) take(*order);
  }
}

void Leash::take(const Order& order) {
  if (order.kind != Order::Kind::kSignal) return ears_.on_order(order);
  stopped_ = order.number == SIGSTOP;
  if (stopped_) silent_ = os::Deadline::never();
  if (order.number > 0) ears_.on_signal(order.number);
}

void Leash::lose() {
  led_ = false;
  ears_.on_loss();
}

}  // namespace ddp::ddprun
