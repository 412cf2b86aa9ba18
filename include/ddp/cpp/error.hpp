// SPDX-License-Identifier: Apache-2.0
/** @file
 * Errors as exceptions, options with their defaults in them, the log as a function.
 */
#ifndef DDP_CPP_ERROR_HPP
#define DDP_CPP_ERROR_HPP

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddp/experimental.h"

namespace ddp {
/** The C++ layer of the version that a program was compiled with. Its name is part of every symbol: a program and a library
 * of other versions, or libddp's own inside, do not meet. */
inline namespace cpp17_v1 {

/** What an error is about, as numbers: those of ddp_get_error_details, and its lists, at most DDP_MAX_ERROR_LIST of each. */
struct ErrorNumbers {
  ddp_error_details details = {0, DDP_OK, 0, 0, 0, 0, 0, -1, -1};
  std::vector<std::int32_t> ranks;      /**< in the group of the call */
  std::vector<std::int32_t> parameters; /**< indices in the model of the call */
};

/** A call failed. what() is libddp's sentence, which names the culprit. */
class Error : public std::runtime_error {
 public:
  Error(ddp_status status, int rank, const std::string& text, std::shared_ptr<const ErrorNumbers> numbers = nullptr)
      : std::runtime_error(text), status_(status), rank_(rank), numbers_(std::move(numbers)) {}

  /** What went wrong; for a program to act on. */
  ddp_status status() const noexcept { return status_; }
  /** This process's rank in the group of the call; -1 where the call has no group, or none yet. */
  int rank() const noexcept { return rank_; }
  /** What the error is about; of an error that this layer found, nothing. */
  const ErrorNumbers& numbers() const noexcept {
    static const ErrorNumbers none;
    return numbers_ ? *numbers_ : none;
  }
  /** Such as "DDP_ERROR_TIMED_OUT". */
  const char* status_name() const noexcept { return ddp_status_name(status_); }
  /** Does each error with this status break the group of the call, so that later calls fail too, until Group::recover()?
   * Another error (no memory, a defect) may have broken it too: check Group::status() after any error. */
  bool breaks_group() const noexcept {
    return status_ == DDP_ERROR_TIMED_OUT || status_ == DDP_ERROR_PEER_FAILED || status_ == DDP_ERROR_ABORTED ||
           status_ == DDP_ERROR_DIFFERENT_CALLS;
  }

 private:
  ddp_status status_;
  int rank_;
  std::shared_ptr<const ErrorNumbers> numbers_;
};

namespace detail {

/** Of this thread's last failure. */
inline std::shared_ptr<const ErrorNumbers> last_error_numbers() {
  auto found = std::make_shared<ErrorNumbers>();
  found->details.struct_size = static_cast<std::int64_t>(sizeof found->details);
  ddp_get_error_details(&found->details);
  std::int32_t count = 0;
  const auto list = [&count](ddp_status (*get)(std::int32_t*, std::int32_t, std::int32_t*)) {
    std::vector<std::int32_t> numbers(DDP_MAX_ERROR_LIST);
    get(numbers.data(), DDP_MAX_ERROR_LIST, &count);
    numbers.resize(static_cast<std::size_t>(count < DDP_MAX_ERROR_LIST ? count : DDP_MAX_ERROR_LIST));
    return numbers;
  };
  found->ranks = list(ddp_get_error_ranks);
  found->parameters = list(ddp_get_error_parameters);
  return found;
}

}  // namespace detail

/** Throw what a call of the C API answered, unless it is DDP_OK. `group`: for Error::rank(). */
inline void check(ddp_status status, const ddp_group* group = nullptr) {
  if (status == DDP_OK) return;
  const std::string text = ddp_last_error();
  auto numbers = detail::last_error_numbers();
  throw Error(status, group == nullptr ? -1 : ddp_group_get_rank(group), text, std::move(numbers));
}

/** A struct of the C API with its defaults in it: `ddp::GroupOptions options; options.timeout_ms = 5000;`. */
template <class Struct, ddp_status (*init)(Struct*, std::int64_t)>
struct Options : Struct {
  Options() : Struct() { check(init(this, static_cast<std::int64_t>(sizeof(Struct)))); }
};

/** A struct that a call fills: empty, and struct_size is set. */
template <class Struct>
Struct sized() {
  Struct filled = Struct();
  filled.struct_size = static_cast<std::int64_t>(sizeof(Struct));
  return filled;
}

/** Owns one object of the C API; moves, does not copy. */
template <class T, void (*destroy)(T*)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T* owned) : owned_(owned) {}
  T* get() const noexcept { return owned_.get(); }
  void reset() noexcept { owned_.reset(); }

 private:
  struct Destroy {
    void operator()(T* object) const noexcept { destroy(object); }
  };
  std::unique_ptr<T, Destroy> owned_;
};

namespace detail {

/** A std::function that is passed as `user_data`: release() deletes it. */
template <class Function>
struct Boxed {
  static Function* make(Function function) { return new Function(std::move(function)); }
  static void release(void* user_data) { delete static_cast<Function*>(user_data); }
  static Function& in(void* user_data) { return *static_cast<Function*>(user_data); }
};

}  // namespace detail

/** Receives lines of the log, from any thread, one at a time. */
using Log = std::function<void(ddp_log_level, const char* text)>;

/** Choose where log messages go; an empty function: to stderr. For the whole process. As ddp_set_log. */
inline void set_log(ddp_log_level min_level, Log log = {}) {
  static std::mutex one_at_a_time;
  static Log* receiver = nullptr; /* the library may log until the process has ended, so the last one stays */
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  std::unique_ptr<Log> next = log ? std::make_unique<Log>(std::move(log)) : nullptr;
  const ddp_log_fn call = [](void* user_data, ddp_log_level level, const char* text) {
    detail::Boxed<Log>::in(user_data)(level, text);
  };
  check(ddp_set_log(min_level, next ? call : nullptr, next.get())); /* no call of the former one is in progress afterwards */
  delete std::exchange(receiver, next.release());
}

/** Receives log messages beside the other receivers of the process, as long as it lives: from any thread, one at a time. It
 * must not be destroyed inside its own call. As ddp_add_log_listener. */
class LogListener {
 public:
  using Function = std::function<void(const ddp_log_message& message, const char* text)>;
  explicit LogListener(Function function, ddp_log_level min_level = DDP_LOG_WARNING)
      : function_(std::make_unique<Function>(std::move(function))) {
    const ddp_log_listener_fn call = [](void* user_data, const ddp_log_message* message, const char* text) {
      detail::Boxed<Function>::in(user_data)(*message, text);
    };
    check(ddp_add_log_listener(min_level, call, function_.get(), &number_));
  }
  ~LogListener() { ddp_remove_log_listener(number_); }
  LogListener(const LogListener&) = delete;
  LogListener& operator=(const LogListener&) = delete;

 private:
  std::unique_ptr<Function> function_;
  std::int64_t number_ = 0;
};

/** Version of the loaded library, such as "0.1.0". */
inline std::string version() { return ddp_version_string(); }

}  // namespace cpp17_v1
}  // namespace ddp

#endif
