// SPDX-License-Identifier: Apache-2.0
// Checks that work in every thread and process of a test: they throw, and the test at the top turns that into a CMocka
// failure. (CMocka's own assertions jump, which is allowed on the test's own thread only.)
//
//   ddp_case(sums_are_exact) { expect(1 + 1 == 2, "one and one"); }
//
// Such a case is in the list of its program; main() is in support/cases.cpp.
//
//   void sums_are_exact_on(int ranks) { ... }
//   ddp_case_of(sums_are_exact_on(2));                    // a case a line
//   ddp_before_cases(setenv("DDP_GUARD_VALUES", "1", 1));  // what the program does before the cases of this file
#pragma once

// The headers of C++ and POSIX that most tests need, which name only others.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "support/cmocka.hpp"

namespace ddp::test {

using namespace ddp;  // so that a file needs `using namespace ddp::test` only

/// The base of what must not be copied.
struct NotCopied {
  NotCopied() = default;
  NotCopied(const NotCopied&) = delete;
  NotCopied& operator=(const NotCopied&) = delete;
};

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("not so: " + what);
}

template <class A, class B>
void expect_equal(const A& got, const B& wanted, const std::string& what) {
  if (got == wanted) return;
  std::ostringstream text;
  text << what << " is " << got << ", expected " << wanted;
  throw std::runtime_error(text.str());
}

inline void expect_contains(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return;
  throw std::runtime_error("\"" + std::string(text) + "\" does not contain \"" + std::string(part) + "\"");
}

/// Run `body`; it must throw ddp::Error with this status and a text that contains all `parts`. Returns the text.
template <class Body>
std::string expect_error(ddp_status status, Body&& body, std::initializer_list<std::string_view> parts = {}) {
  try {
    body();
  } catch (const Error& error) {
    if (error.status() != status)
      throw std::runtime_error(std::string("expected ") + status_name(status) + ", got " + status_name(error.status()) +
                               ": " + error.text());
    for (const std::string_view part : parts) expect_contains(error.text(), part);
    return error.text();
  }
  throw std::runtime_error(std::string("expected ") + status_name(status) + ", but nothing was thrown");
}

/// In support/cases.cpp, whose main() runs them. An exception fails the case.
bool list_case(const char* file, const std::string& name, const std::function<void()>& body);

/// With the arguments of the program; it may end the program, with 77 as skipped.
bool list_before_cases(const char* file, void (*before)(int argc, char** argv));

/// Steps around every case of the program.
bool list_around_cases(CMFixtureFunction setup, CMFixtureFunction teardown);

/// A file of a program of several (together.py): its cases, or the main() that it has.
bool list_file(const char* name, const char* path, int (*main)(int, char**));
bool list_file(const char* name, const char* path, int (*main)());
inline bool list_file(const char* name, const char* path, std::nullptr_t) {
  return list_file(name, path, static_cast<int (*)()>(nullptr));
}

}  // namespace ddp::test

/// The head of a case, which may throw.
#define ddp_case(function)                                                                                \
  void function();                                                                                        \
  [[maybe_unused]] const bool function##_is_listed = ddp::test::list_case(__FILE__, #function, function); \
  void function()

/// A case that is a call, which is its name.
#define ddp_case_of(...)                                            \
  [[maybe_unused]] const bool ddp_with_line(is_listed_, __LINE__) = \
      ddp::test::list_case(__FILE__, #__VA_ARGS__, [] { __VA_ARGS__; })

#define ddp_before_cases(...)                   \
  [[maybe_unused]] const bool is_before_cases = \
      ddp::test::list_before_cases(__FILE__, []([[maybe_unused]] int argc, [[maybe_unused]] char** argv) { __VA_ARGS__; })

#define ddp_with_line(name, line) ddp_joined(name, line)
#define ddp_joined(name, line) name##line

// A test names these without more, and is in an unnamed namespace of its own (together.py).
using namespace ddp::test;
