// SPDX-License-Identifier: Apache-2.0
// The lane with operations that the test controls.
#include "exchange/progress_queue.hpp"

#include <pthread.h>

#include "os/thread.hpp"
#include "support/check.hpp"

/// Needs `steps` advances; `blocked` ones wait for another operation.
class Scripted final : public collective::BucketOperation {
 public:
  Scripted(std::string name, std::string& log, int steps) : name_(std::move(name)), log_(log), steps_(steps) {}
  void start(const collective::BucketHeader&) override {}
  [[nodiscard]] collective::Progress advance(int64_t) override {
    if (blocked) return collective::Progress::kWaiting;
    if (steps_ > 0) {
      --steps_;
      log_ += name_;
      return collective::Progress::kAdvanced;
    }
    return collective::Progress::kDone;
  }
  void finish() override {
    if (ends_thread) pthread_exit(nullptr);
    if (fails) throw Error(DDP_ERROR_TIMED_OUT, "operation " + name_);
    for (; steps_ > 0; --steps_) log_ += name_;
  }
  [[nodiscard]] bool local_done() const noexcept override { return steps_ == 0 || overtaken; }
  [[nodiscard]] const collective::BucketHeader& header() const noexcept override { return header_; }
  [[nodiscard]] bool set_address(int32_t, std::byte*) noexcept override { return true; }
  [[nodiscard]] std::string describe() const override { return "scripted"; }

  bool blocked = false;
  bool fails = false;
  bool overtaken = false;  // only waits for others
  bool ends_thread = false;

 private:
  std::string name_;
  std::string& log_;
  int steps_;
  collective::BucketHeader header_;
};

ddp_case(operations_are_worked_on_in_order) {
  for (const collective::ProgressQueue::Driver driver :
       {collective::ProgressQueue::Driver::kCaller, collective::ProgressQueue::Driver::kProgram,
        collective::ProgressQueue::Driver::kEnd, collective::ProgressQueue::Driver::kThread}) {
    std::string log;
    collective::ProgressQueue lane(driver, 4);
    for (int pass = 0; pass < 3; ++pass) {
      Scripted a("a", log, 2);
      Scripted b("b", log, 3);
      lane.push(a);
      lane.push(b);
      lane.drain();
    }
    expect_equal(log, std::string("aabbbaabbbaabbb"), "work");
  }
}

ddp_case(a_poke_works_a_share_and_never_waits) {
  std::string log;
  collective::ProgressQueue lane(collective::ProgressQueue::Driver::kCaller, 4);
  Scripted a("a", log, 1);
  Scripted b("b", log, 1);
  lane.poke(1);  // nothing there
  a.blocked = true;
  lane.push(a);
  lane.push(b);
  lane.poke(1);
  expect_equal(log, std::string(""), "an operation with work left is not overtaken");
  a.overtaken = true;
  lane.poke(1);
  expect_equal(log, std::string("b"), "one that only waits is");
  a.blocked = false;
  lane.drain();
  expect_equal(log, std::string("ba"), "the rest");
}

ddp_case(threads_of_the_library_work_for_no_program_that_has_its_own) {
  using Driver = collective::ProgressQueue::Driver;
  for (const Driver driver : {Driver::kCaller, Driver::kProgram, Driver::kEnd}) {
    std::string log;
    collective::ProgressQueue lane(driver, 4);
    Scripted a("a", log, 1);
    Scripted b("b", log, 1);
    lane.push(a);
    os::start_thread("library", [&] { lane.poke(1); }).join();
    expect_equal(log, std::string(driver == Driver::kCaller ? "a" : ""), "a thread of the library");
    lane.push(b);
    std::thread([&] {
      lane.poke(1);
      lane.poke(1);
    }).join();
    expect_equal(log, std::string(driver == Driver::kEnd ? "" : "ab"), "a thread of the program");
    lane.drain();
    expect_equal(log, std::string("ab"), "the end");
  }
}

ddp_case(the_first_error_comes_from_drain_and_the_lane_goes_on) {
  for (const collective::ProgressQueue::Driver driver :
       {collective::ProgressQueue::Driver::kCaller, collective::ProgressQueue::Driver::kProgram,
        collective::ProgressQueue::Driver::kEnd, collective::ProgressQueue::Driver::kThread}) {
    std::string log;
    collective::ProgressQueue lane(driver, 4);
    Scripted a("a", log, 1);
    Scripted b("b", log, 1);
    a.fails = true;
    lane.push(a);
    lane.push(b);
    expect_equal(expect_error(DDP_ERROR_TIMED_OUT, [&] { lane.drain(); }), std::string("operation a"), "the error");
    Scripted c("c", log, 1);
    lane.push(c);
    lane.drain();
    expect_contains(log, "c");
  }
}

#if !defined(__SANITIZE_ADDRESS__)  // as in capi/callback_test.cpp
ddp_case(a_thread_that_is_ended_by_the_program_is_an_error_for_ever) {
  std::string log;
  collective::ProgressQueue lane(collective::ProgressQueue::Driver::kThread, 4);
  for (int pass = 0; pass < 3; ++pass) {
    Scripted a("a", log, 0), b("b", log, 1);
    a.ends_thread = true;
    lane.push(a);
    lane.push(b);
    expect_error(DDP_ERROR_CALLBACK, [&] { lane.drain(); }, {"has ended the library's thread"});
  }
  expect_equal(log, std::string(""), "what was behind it");
}
#endif
