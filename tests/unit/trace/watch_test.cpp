// SPDX-License-Identifier: Apache-2.0
// Traces begin and end while threads of other groups record: a group and its sub-groups share one Watch.
#include "trace/watch.hpp"

#include "os/clock.hpp"
#include "support/check.hpp"
#include "support/file_faults.hpp"

using namespace ddp::trace;

ddp_case(traces_begin_and_end_beside_threads_that_record) {
  constexpr int kThreads = 3, kTraces = 60;
  const TemporaryFolder folder;
  Watch watch;
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      for (uint32_t n = 1; !over.load(); ++n) {
        const int64_t now = os::now_ns();
        watch.record({EventKind::kStep, static_cast<uint32_t>(thread + 1), n, now, now});
        watch.end_gather(n, now, true);
      }
    });
  size_t events = 0;
  for (int n = 0; n < kTraces; ++n) {
    watch.start(Recorder::make(folder.file("one.ring"), {64, 0, 1, "h", "b"}));
    expect(watch.is_on(), "a trace is on");
    expect_equal(watch.traces(), static_cast<uint32_t>(n + 1), "traces");
    if (n % 10 == 0) std::this_thread::yield();
    watch.stop();
    const Watch::Use use(watch);
    expect(use.get() == nullptr, "it is over");
    for (const Ring& ring : read_rings(folder.path())) {
      events += ring.events.size();
      for (const Event& event : ring.events)
        expect(event.model <= kThreads && event.begin_ns <= event.end_ns, "events are whole");
    }
  }
  over = true;
  for (std::thread& thread : threads) thread.join();
  expect(events > 0, "something was recorded");
}

ddp_case(one_group_has_a_trace_and_ends_it) {
  Sessions sessions;
  const int first = 1, second = 2;
  std::string other;
  expect(sessions.claim({&first, "a", "", 1}, other), "there is none");
  expect(!sessions.claim({&second, "b", "", 2}, other) && other == "a", "there is one");
  expect(!sessions.claim({&first, "c", "", 3}, other), "of the same group, too");
  expect(!sessions.of(&second).has_value() && sessions.of(&first)->path == "a", "it is the first group's");
  sessions.drop(&second);
  expect(sessions.of(&first).has_value(), "the other one cannot end it");
  sessions.set_launchers({&second, "l", "", 4});
  sessions.drop(&first);
  expect(sessions.claim({&second, "b", "", 5}, other), "beside the launcher's");
  expect(sessions.take_launchers()->path == "l" && !sessions.take_launchers().has_value(), "once");
}
