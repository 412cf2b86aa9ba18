// SPDX-License-Identifier: Apache-2.0
// Checks that work in every thread and process of a test: they throw, and the test at the top turns that into a CMocka
// failure. (CMocka's own assertions jump, which is allowed on the test's own thread only.)
//
//   ddp_case(sums_are_exact) { expect(1 + 1 == 2, "one and one"); }
//
// Such a case is in the list of its program; main() is in support/cases.cpp. A program that makes cases of templates or
// wants steps around them has a main() and a table of its own, with ddp_test.
#pragma once

#include <cstddef>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "support/cmocka.hpp"

namespace ddp::test {

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

/// Run `body`; it must throw ddp::Error with this status. Returns the error's text.
template <class Body>
std::string expect_error(ddp_status status, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.status() == status) return error.text();
    throw std::runtime_error(std::string("expected ") + status_name(status) + ", got " + status_name(error.status()) + ": " +
                             error.text());
  }
  throw std::runtime_error(std::string("expected ") + status_name(status) + ", but nothing was thrown");
}

/// A test function whose exceptions are failures of the test.
template <void (*Body)(void**)>
void guarded(void** state) {
  std::string failure;
  try {
    Body(state);
    return;
  } catch (const Error& error) {
    failure = std::string(status_name(error.status())) + ": " + error.text();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  print_error("%s\n", failure.c_str());
  std::string().swap(failure);  // CMocka jumps over destructors
  _fail(__FILE__, __LINE__);
}

/// In support/cases.cpp, beside the main() that runs them. A file has cases or a main().
bool list_case(const char* file, const char* name, CMUnitTestFunction function);

/// A file of a program of several (together.py): its cases, or the main() that it has.
bool list_file(const char* name, const char* path, int (*main)(int, char**));
bool list_file(const char* name, const char* path, int (*main)());
inline bool list_file(const char* name, const char* path, std::nullptr_t) {
  return list_file(name, path, static_cast<int (*)()>(nullptr));
}

}  // namespace ddp::test

/// The head of a case, which may throw.
#define ddp_case(function)                                                     \
  void function(void**);                                                       \
  [[maybe_unused]] const bool function##_is_listed =                           \
      ddp::test::list_case(__FILE__, #function, ddp::test::guarded<function>); \
  void function(void**)

/// A CMUnitTest whose function may throw.
#define ddp_test(function) \
  { #function, ddp::test::guarded < function>, nullptr, nullptr, nullptr }
