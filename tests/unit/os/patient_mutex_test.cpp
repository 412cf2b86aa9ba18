// SPDX-License-Identifier: Apache-2.0
// A mutex that a thread may stop waiting for.
#include "os/patient_mutex.hpp"

#include "support/check.hpp"

ddp_case(one_thread_at_a_time_holds_it) {
  os::PatientMutex mutex;
  int64_t count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5'000; ++i) {
        if (t % 2 == 0)
          mutex.lock();
        else
          while (!mutex.try_lock_for(std::chrono::milliseconds(1))) {
          }
        ++count;
        mutex.unlock();
      }
    });
  for (std::thread& thread : threads) thread.join();
  expect_equal(count, int64_t{20'000}, "turns");
}

ddp_case(a_wait_ends_when_its_time_is_over) {
  os::PatientMutex mutex;
  mutex.lock();
  std::atomic<bool> got{true};
  std::thread([&] { got = mutex.try_lock_for(std::chrono::milliseconds(20)); }).join();
  expect(!got, "it is held");
  mutex.unlock();
  expect(mutex.try_lock_for(std::chrono::milliseconds(0)), "it is free");
  mutex.unlock();
}
