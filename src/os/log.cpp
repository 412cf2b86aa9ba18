// SPDX-License-Identifier: Apache-2.0
#include "os/log.hpp"

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>

#include "core/attempt.hpp"
#include "core/callback.hpp"
#include "os/process.hpp"

namespace ddp::os {
namespace {

ddp_log_level level_from_environment() noexcept {
  const char* text = std::getenv("DDP_LOG");
  if (text == nullptr) return DDP_LOG_WARNING;
  if (std::strcmp(text, "debug") == 0) return DDP_LOG_DEBUG;
  if (std::strcmp(text, "info") == 0) return DDP_LOG_INFO;
  if (std::strcmp(text, "error") == 0) return DDP_LOG_ERROR;
  if (std::strcmp(text, "off") == 0) return DDP_LOG_OFF;
  return DDP_LOG_WARNING;
}

const char* level_name(ddp_log_level level) noexcept {
  switch (level) {
    case DDP_LOG_DEBUG: return "debug";
    case DDP_LOG_INFO: return "info";
    case DDP_LOG_WARNING: return "warning";
    default: return "error";
  }
}

struct Receiver {
  ddp_log_fn fn = nullptr;
  void* user_data = nullptr;
};

struct Place {
  std::atomic<int64_t> number{0};  // 0: free. Set last and cleared first, so that a fork never finds half of a listener
  LogListener listener;
};
constexpr size_t kMostListeners = 64;

// In memory of its own and never destroyed, so that it cannot fail and threads that log while the process ends stay safe.
struct Sink {
  PerProcess process;
  std::mutex mutex;  // guards all below, and keeps messages apart
  Receiver receivers[2];
  std::atomic<int> receiver{0};  // changed at once, so that a fork never finds half of one
  std::atomic<ddp_log_level> min_level{level_from_environment()};
  std::atomic<ddp_log_level> listened{DDP_LOG_OFF};  // the lowest level of a listener
  int64_t last_number = 0;
  Place places[kMostListeners];
};

Sink& sink() noexcept {
  alignas(Sink) static std::byte memory[sizeof(Sink)];
  static Sink& instance = *new (memory) Sink;
  instance.process.enter(
      [] { new (static_cast<void*>(&instance.mutex)) std::mutex; });  // a fork finds it as some thread left it
  return instance;
}

/// This thread holds the lock, and is in a function of the program.
constinit thread_local bool handing_over = false;

/// The lock, unless this thread has it already.
class Guard {
 public:
  explicit Guard(Sink& sink) : lock_(sink.mutex, std::defer_lock) {
    if (!handing_over) lock_.lock();
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

void to_stderr(ddp_log_level level, const char* text) noexcept {
  std::fprintf(stderr, "libddp %s: %s\n", level_name(level), text);
}

/// The caller continues, whatever the program's function does; a message that the function fails on is written to stderr.
template <class Call>
void hand_over(ddp_log_level level, const char* text, const Call& call) noexcept {
  handing_over = true;
  const std::optional<Error> error = try_to([&] { call_program("the log function", call); });
  handing_over = false;
  if (error) std::fprintf(stderr, "libddp %s: %s\nlibddp error: %s\n", level_name(level), text, error->what());
}

/// The listener that was added next behind this number; NULL: none.
const Place* place_behind(const Sink& out, int64_t number) noexcept {
  const Place* next = nullptr;
  for (const Place& place : out.places) {
    const int64_t at = place.number.load();
    if (at > number && (next == nullptr || at < next->number.load())) next = &place;
  }
  return next;
}

/// A listener that is added meanwhile does not get the message, and one that is removed is passed over.
void tell_listeners(Sink& out, const ddp_log_message& message, const char* text) noexcept {
  const int64_t newest = out.last_number;
  for (int64_t last = 0; const Place* const next = place_behind(out, last);) {
    last = next->number.load();
    if (last > newest) return;
    const LogListener to = next->listener;
    if (message.level >= to.min_level) hand_over(message.level, text, [&] { to.fn(to.user_data, &message, text); });
  }
}

void write(ddp_status code, ddp_log_level level, const char* format, va_list arguments) noexcept {
  char text[1024];
  std::vsnprintf(text, sizeof text, format, arguments);
  Sink& out = sink();
  const bool wanted = level >= out.min_level.load(std::memory_order_relaxed);
  if (handing_over) return wanted ? to_stderr(level, text) : void();
  const NoCancellation whole;
  const Guard guard(out);
  if (wanted) {
    if (const Receiver& receiver = out.receivers[out.receiver.load()]; receiver.fn != nullptr)
      hand_over(level, text, [&] { receiver.fn(receiver.user_data, level, text); });
    else
      to_stderr(level, text);
  }
  const LogAbout about = log_about();
  tell_listeners(out, {sizeof(ddp_log_message), level, code, about.group, about.rank, 0}, text);
}

void note_lowest_level(Sink& out) noexcept {
  ddp_log_level lowest = DDP_LOG_OFF;
  for (const Place& place : out.places)
    if (place.number.load() != 0) lowest = std::min(lowest, place.listener.min_level);
  out.listened.store(lowest);
}

}  // namespace

bool log_enabled(ddp_log_level level) noexcept {
  const Sink& out = sink();
  return level >= out.min_level.load(std::memory_order_relaxed) || level >= out.listened.load(std::memory_order_relaxed);
}

void log(ddp_log_level level, const char* format, ...) noexcept {
  if (!log_enabled(level)) return;
  va_list arguments;
  va_start(arguments, format);
  write(DDP_OK, level, format, arguments);
  va_end(arguments);
}

void log_of(const Error& error, ddp_log_level level, const char* format, ...) noexcept {
  if (!log_enabled(level)) return;
  va_list arguments;
  va_start(arguments, format);
  write(error.status(), level, format, arguments);
  va_end(arguments);
}

void set_log_sink(ddp_log_level min_level, ddp_log_fn fn, void* user_data) noexcept {
  Sink& out = sink();
  const Guard guard(out);
  const int other = 1 - out.receiver.load();
  out.receivers[other] = {fn, user_data};
  out.receiver.store(other);
  out.min_level.store(min_level, std::memory_order_relaxed);
}

int64_t add_log_listener(const LogListener& listener) {
  Sink& out = sink();
  const Guard guard(out);
  Place* const end = out.places + kMostListeners;
  Place* const free = std::find_if(out.places, end, [](const Place& each) { return each.number.load() == 0; });
  if (free == end)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "ddp_add_log_listener: there are %zu listeners already; remove one",
                     kMostListeners);
  free->listener = listener;
  free->number.store(++out.last_number);
  note_lowest_level(out);
  return out.last_number;
}

void remove_log_listener(int64_t number) {
  Sink& out = sink();
  const Guard guard(out);
  if (number < 0 || number > out.last_number)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "ddp_remove_log_listener: listener is %lld, which no call of ddp_add_log_listener gave",
                     static_cast<long long>(number));
  for (Place& place : out.places)
    if (number != 0 && place.number.load() == number) place.number.store(0);
  note_lowest_level(out);
}

LogAbout& log_about() noexcept {
  constinit thread_local LogAbout about;
  return about;
}

int64_t next_log_group() noexcept {
  static std::atomic<int64_t> last{0};
  return ++last;
}

}  // namespace ddp::os
