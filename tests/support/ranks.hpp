// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of this process.
//
//   run_ranks(4, [&](int rank) { ...; expect(sum == 10, "sum on rank " + std::to_string(rank)); });
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ddp::test {

/// Run `body(rank)` on `size` threads and wait for all. Throws what the first failing rank threw. A rank that is not back
/// after `limit_ms` ends the test program with its number, because a thread cannot be ended.
inline void run_ranks(int size, const std::function<void(int)>& body, int64_t limit_ms = 60'000) {
  std::mutex mutex;  // guards all that follows
  std::condition_variable changed;
  std::exception_ptr first;
  std::vector<bool> back(static_cast<size_t>(size), false);
  int running = size;

  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      std::exception_ptr thrown;
      try {
        body(rank);
      } catch (...) {
        thrown = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      if (thrown && !first) first = thrown;
      back[static_cast<size_t>(rank)] = true;
      --running;
      changed.notify_all();
    });
  }
  {
    std::unique_lock lock(mutex);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    if (!changed.wait_until(lock, limit, [&] { return running == 0; })) {
      for (int rank = 0; rank < size; ++rank)
        if (!back[static_cast<size_t>(rank)])
          std::fprintf(stderr, "rank %d is not back after %lld ms\n", rank, static_cast<long long>(limit_ms));
      std::abort();
    }
  }
  for (auto& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace ddp::test
