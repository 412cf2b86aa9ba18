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

#include "ddp/experimental.h"

namespace ddp {
/** The C++ layer of the version that a program was compiled with. Its name is part of every symbol: a program and a library
 * of other versions, or libddp's own inside, do not meet. */
inline namespace cpp17_v1 {

/** A call failed. what() is libddp's sentence, which names the culprit. */
class Error : public std::runtime_error {
 public:
  Error(ddp_status status, int rank, const std::string& text) : std::runtime_error(text), status_(status), rank_(rank) {}

  /** What went wrong; for a program to act on. */
  ddp_status status() const noexcept { return status_; }
  /** This process's rank in the group of the call; -1 where the call has no group, or none yet. */
  int rank() const noexcept { return rank_; }
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
};

/** Throw what a call of the C API answered, unless it is DDP_OK. `group`: for Error::rank(). */
inline void check(ddp_status status, const ddp_group* group = nullptr) {
  if (status == DDP_OK) return;
  const std::string text = ddp_last_error();
  throw Error(status, group == nullptr ? -1 : ddp_group_rank(group), text);
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

/** Version of the loaded library, such as "0.1.0". */
inline std::string version() { return ddp_version_string(); }

}  // namespace cpp17_v1
}  // namespace ddp

#endif
