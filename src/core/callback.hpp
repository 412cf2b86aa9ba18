// SPDX-License-Identifier: Apache-2.0
// Every call of a function of the program: in the program's floating-point environment, and an exception of it becomes an
// Error with CALLBACK and its text. So it is treated like a callback that returns an error, also on threads of the library,
// where no other code would catch it.
// The end of a thread (forced unwinding) passes through.
// Threads: any.
// Tested by capi/callback_test.cpp.
#pragma once

#include <cxxabi.h>
#include <pthread.h>

#include <exception>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/float_environment.hpp"

namespace ddp {

/// This library has a C++ runtime of its own. An exception of the program is counted as under way by the program's runtime,
/// and taken off ours when we catch it; this puts both right, so that std::uncaught_exceptions() stays true for the program.
class ExceptionCount {
 public:
  ExceptionCount() noexcept;
  /// In the handler.
  void caught() const noexcept;

 private:
  unsigned before_;
};

/// `what()` names the function, such as "the writer". It is only asked when that is needed.
template <class What, class Call>
auto call_program(const What& what, Call&& call) {
  const ProgramFloats theirs;
  const ExceptionCount count;
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    throw;
  } catch (const std::exception& exception) {
    count.caught();
    throw make_error(DDP_ERROR_CALLBACK, "%s threw an exception: %s", std::string(what()).c_str(), exception.what());
  } catch (...) {
    count.caught();
    throw make_error(DDP_ERROR_CALLBACK, "%s threw an exception that is not a std::exception", std::string(what()).c_str());
  }
}

template <class Call>
auto call_program(const char* what, Call&& call) {
  return call_program([what] { return what; }, std::forward<Call>(call));
}

/// Where a thread must not end: its cancellation waits until this ends.
class NoCancellation {
 public:
  NoCancellation() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = 0;
};

}  // namespace ddp
