// SPDX-License-Identifier: Apache-2.0
// Waiting for descriptors: ours, and those that other processes share.
#include "ddprun/loop.hpp"

#include "ddprun/fd.hpp"
#include "os/clock.hpp"
#include "support/check.hpp"
#include "support/file_faults.hpp"

using namespace ddp::ddprun;

constexpr int64_t kLongMs = 10'000;

struct Pipe {
  Pipe() {
    int ends[2];
    expect(pipe2(ends, O_CLOEXEC) == 0, "a pipe");
    reading = Fd(ends[0]);
    writing = Fd(ends[1]);
  }
  void put(char byte) const { expect(write(writing.get(), &byte, 1) == 1, "a byte"); }
  Fd reading, writing;
};

ddp_case(a_handler_is_called_once_for_each_wait) {
  for (const Ready::Whose whose : {Ready::Whose::kOurs, Ready::Whose::kShared}) {
    Loop loop;
    const Pipe pipe;
    int called = 0;
    Ready ready(loop, pipe.reading.get(), whose, Ready::For::kReading, [&] { ++called; });
    pipe.put('a');
    loop.wait(0);
    expect_equal(called, 0, "nobody waited");
    for (int i = 1; i <= 3; ++i) {  // the byte stays there
      ready.wait();
      ready.wait();
      loop.wait(i == 2 ? 0 : kLongMs);
      loop.wait(0);
      expect_equal(called, i, "once");
    }
  }
}

ddp_case(a_wait_ends_after_its_time) {
  Loop loop;
  const Pipe pipe;
  Ready ready(loop, pipe.reading.get(), Ready::Whose::kShared, Ready::For::kReading, [] { expect(false, "not ready"); });
  ready.wait();
  const int64_t begin = ddp::os::now_ns();
  loop.wait(30);
  expect(ddp::os::now_ns() - begin >= 29'000'000, "30 ms");
}

ddp_case(a_shared_descriptor_keeps_its_flags) {
  Loop loop;
  const Pipe pipe;
  bool called = false;
  {
    Ready ready(loop, pipe.writing.get(), Ready::Whose::kShared, Ready::For::kWriting, [&] { called = true; });
    ready.wait();
    loop.wait(kLongMs);
  }
  expect(called, "an empty pipe takes more");
  expect_equal(fcntl(pipe.writing.get(), F_GETFL) & O_NONBLOCK, 0, "flags");
}

ddp_case(what_cannot_be_waited_for_is_ready) {
  const TemporaryFolder folder;
  const Fd file(open(folder.file("x").c_str(), O_RDWR | O_CREAT, 0600)), null(open("/dev/null", O_RDWR));
  for (const int fd : {file.get(), null.get(), 9999}) {
    Loop loop;
    int called = 0;
    Ready ready(loop, fd, Ready::Whose::kShared, Ready::For::kWriting, [&] { ++called; });
    for (int i = 0; i < 3; ++i) {
      ready.wait();
      loop.wait(kLongMs);
    }
    expect_equal(called, 3, "calls for descriptor " + std::to_string(fd));
  }
}

ddp_case(the_end_of_a_reader_is_seen) {
  Loop loop;
  Pipe pipe;
  bool called = false;
  Ready ready(loop, pipe.writing.get(), Ready::Whose::kShared, Ready::For::kEnd, [&] { called = true; });
  ready.wait();
  loop.wait(20);
  expect(!called, "there is a reader");
  pipe.reading.reset();
  loop.wait(kLongMs);
  expect(called, "there is none");
}

ddp_case(it_may_end_in_its_handler) {
  Loop loop;
  Pipe pipe;
  std::optional<Ready> ready;
  int called = 0;
  ready.emplace(loop, pipe.reading.get(), Ready::Whose::kOurs, Ready::For::kReading, [&] {
    ++called;
    ready.reset();
    pipe.reading.reset();
  });
  pipe.put('a');
  ready->wait();
  loop.wait(kLongMs);
  loop.wait(20);
  expect_equal(called, 1, "calls");
}

ddp_case(one_that_ended_is_not_called) {
  Loop loop;
  const Pipe pipe;
  {
    Ready ready(loop, pipe.reading.get(), Ready::Whose::kOurs, Ready::For::kReading, [] { expect(false, "it has ended"); });
    ready.wait();
  }
  pipe.put('a');
  loop.wait(20);
  Ready next(loop, pipe.reading.get(), Ready::Whose::kOurs, Ready::For::kReading, [] {});  // the same number again
  next.wait();
  loop.wait(kLongMs);
}
