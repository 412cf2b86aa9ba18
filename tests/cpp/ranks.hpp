// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, for the tests of <ddp/ddp.hpp>: they use the public headers alone.
#pragma once

#include <ddp/ddp.hpp>
#include <exception>
#include <thread>
#include <vector>

#include "support/cmocka.hpp"

/** Run `work` on each rank of a group of threads; the first exception comes out. */
template <class Work>
void on_ranks(int size, const std::string& name, Work work) {
  std::vector<std::exception_ptr> problems(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ddp::GroupOptions options;
        options.rank = rank, options.world_size = size;
        options.timeout_ms = 20000;
        ddp::Group group("local://" + name, options);
        work(group);
      } catch (...) {
        problems[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& problem : problems) {
    if (problem) std::rethrow_exception(problem);
  }
}

/** What a failing call throws; a failed test if it throws nothing. */
template <class Call>
ddp::Error error_of(Call call) {
  try {
    call();
  } catch (const ddp::Error& error) {
    return error;
  }
  throw std::logic_error("no ddp::Error was thrown");
}

inline void require(bool holds, const char* what, const char* file, int line) {
  if (!holds) throw std::logic_error(std::string(file) + ":" + std::to_string(line) + ": " + what);
}
/** Any thread: throws. */
#define REQUIRE(condition) require((condition), #condition, __FILE__, __LINE__)

/** A CMocka test of a function that may throw. */
template <void (*test)()>
void guarded(void**) {
  try {
    test();
  } catch (const std::exception& error) {
    print_error("%s\n", error.what());
    _fail(__FILE__, __LINE__);
  }
}
#define TEST(name) \
  CMUnitTest { #name, guarded < name>, nullptr, nullptr, nullptr }
