// SPDX-License-Identifier: Apache-2.0
// Shared memory of a file becomes private where it is: no write of another thread is lost, a fork writes to memory of its
// own, and what others have mapped there meanwhile stays.
#include "os/file_window.hpp"

#include "support/check.hpp"

constexpr int64_t kBytes = int64_t{8} << 20;
constexpr int64_t kOffset = int64_t{3} << 12;

/// A file whose pages from kOffset on are mapped at a place of their own.
struct Mapped : NotCopied {
  Mapped() {
    window.fd = memfd_create("window", MFD_CLOEXEC);
    expect(window.fd >= 0 && ftruncate(window.fd, kOffset + kBytes) == 0, "a file in memory");
    window.file = os::identity_of(window.fd);
    window.offset = kOffset;
    window.bytes = kBytes;
    void* const place = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, window.fd, kOffset);
    expect(place != MAP_FAILED, "mapped");
    window.begin = static_cast<std::byte*>(place);
    void* const other = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, window.fd, kOffset);
    expect(other != MAP_FAILED, "mapped again");
    peer = static_cast<std::byte*>(other);
    std::memset(window.begin, 7, kBytes);
  }
  ~Mapped() {
    munmap(window.begin, kBytes);
    munmap(peer, kBytes);
    close(window.fd);
  }
  [[nodiscard]] int64_t held() const {
    struct stat file {};
    expect(fstat(window.fd, &file) == 0, "fstat");
    return static_cast<int64_t>(file.st_blocks) * 512;
  }
  os::FileWindow window;
  std::byte* peer = nullptr;  // as another process maps it
};

int64_t count_other(const std::byte* data, int64_t bytes, int value) {
  int64_t count = 0;
  for (int64_t i = 0; i < bytes; ++i) count += data[i] != static_cast<std::byte>(value) ? 1 : 0;
  return count;
}

ddp_case(others_reach_private_memory_no_more_and_the_file_gives_its_pages_back) {
  Mapped mapped;
  std::memset(mapped.peer, 8, 4096);
  expect(os::make_private(mapped.window) == os::Left::kAll, "all of it was there");
  std::memset(mapped.peer, 99, kBytes);
  expect_equal(count_other(mapped.window.begin, 4096, 8) + count_other(mapped.window.begin + 4096, kBytes - 4096, 7),
               int64_t{0}, "the contents stay, what a late peer writes does not come");
  std::memset(mapped.window.begin, 5, kBytes);
  expect_equal(count_other(mapped.peer, kBytes, 99), int64_t{0}, "and the other way round");
  expect(os::make_private(mapped.window) == os::Left::kNothing, "a second time finds nothing shared");
  expect_equal(count_other(mapped.window.begin, kBytes, 5), int64_t{0}, "and changes nothing");
}

ddp_case(what_is_for_reading_only_is_copied_too) {
  Mapped mapped;
  expect(mprotect(mapped.window.begin, kBytes / 2, PROT_READ) == 0, "for reading");
  expect(os::make_private(mapped.window) == os::Left::kAll, "all of it was there");
  std::memset(mapped.peer, 99, kBytes);
  expect_equal(count_other(mapped.window.begin, kBytes, 7), int64_t{0}, "what a late peer writes does not come");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);  // cmocka's would continue here
    *static_cast<volatile std::byte*>(mapped.window.begin) = std::byte{1};
    _exit(0);
  }
  int status = 0;
  expect(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV,
         "it is for reading still");
}

ddp_case(the_pages_of_the_file_go_back) {
  Mapped mapped;
  expect(mapped.held() >= kBytes, "it had them");
  expect(os::make_private(mapped.window) == os::Left::kAll, "all of it was there");
  expect_equal(mapped.held(), int64_t{0}, "it has none");
}

// What allocators count on: pages that they give up read as zeros.
ddp_case(given_up_pages_are_zero) {
  Mapped mapped;
  expect(os::make_private(mapped.window) == os::Left::kAll, "private");
  expect(madvise(mapped.window.begin, kBytes, MADV_DONTNEED) == 0, "given up");
  expect_equal(count_other(mapped.window.begin, kBytes, 0), int64_t{0}, "zeros");
}

ddp_case(no_write_of_another_thread_is_lost) {
  for (int trial = 0; trial < 5; ++trial) {
    Mapped mapped;
    std::memset(mapped.window.begin, 0, kBytes);
    auto* const numbers = reinterpret_cast<volatile uint64_t*>(mapped.window.begin);
    constexpr size_t kNumbers = kBytes / sizeof(uint64_t);
    std::vector<uint64_t> expected(kNumbers);
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> writes{0};
    std::thread writer([&] {
      uint32_t random = 1;
      while (!stop.load()) {
        random = random * 1664525U + 1013904223U;
        const size_t at = (random >> 8) % kNumbers;
        numbers[at] = numbers[at] + 1;
        ++expected[at];
        writes.fetch_add(1, std::memory_order_relaxed);
      }
    });
    const auto await = [&](uint64_t more) {
      const uint64_t goal = writes.load() + more;
      while (writes.load() < goal) std::this_thread::yield();
    };
    await(1000);
    const os::Left left = os::make_private(mapped.window);
    await(1000);
    stop.store(true);
    writer.join();
    expect(left == os::Left::kAll, "private");
    int64_t lost = 0;
    for (size_t i = 0; i < kNumbers; ++i) lost += numbers[i] != expected[i] ? 1 : 0;
    expect_equal(lost, int64_t{0}, "numbers that lost a write");
  }
}

ddp_case(what_was_unmapped_or_mapped_anew_stays_as_it_is) {
  Mapped mapped;
  std::byte* const middle = mapped.window.begin + kBytes / 4;
  void* const own = mmap(middle, kBytes / 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  expect(own == middle, "another mapping in the middle");
  std::memset(own, 3, kBytes / 4);
  void* const elsewhere = mmap(middle + kBytes / 4, kBytes / 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                               mapped.window.fd, kOffset);  // the file, but another place of it
  expect(elsewhere != MAP_FAILED, "mapped anew");
  expect(os::make_private(mapped.window) == os::Left::kPartly, "a part is not there any more");
  expect_equal(count_other(middle, kBytes / 4, 3), int64_t{0}, "the other mapping");
  std::memset(mapped.peer, 9, kBytes);
  expect_equal(count_other(mapped.window.begin, kBytes / 4, 7), int64_t{0}, "the part that was left is private");
  expect_equal(count_other(middle + kBytes / 4, kBytes / 4, 9), int64_t{0}, "the file mapped anew is shared as it was");
}

int status_of_child(void (*body)(const os::FileWindow&), const os::FileWindow& window) {
  const pid_t child = fork();
  if (child == 0) {
    body(window);
    _exit(0);
  }
  int status = -1;
  expect(child > 0 && waitpid(child, &status, 0) == child, "a child");
  return status;
}

ddp_case(a_fork_writes_to_memory_of_its_own) {
  Mapped mapped;
  const auto overwrite = [](const os::FileWindow& window) {
    if (count_other(window.begin, kBytes, 7) != 0) _exit(1);
    std::memset(window.begin, 99, kBytes);
    if (count_other(window.begin, kBytes, 99) != 0) _exit(2);
  };
  {
    const os::PrivateInForks kept(mapped.window);
    const os::PrivateInForks another(os::FileWindow{mapped.window.fd, mapped.window.file, mapped.peer, kBytes, kOffset});
    expect_equal(status_of_child(overwrite, mapped.window), 0, "the child");
    expect_equal(count_other(mapped.window.begin, kBytes, 7), int64_t{0}, "the parent's memory");
  }
  expect_equal(status_of_child(overwrite, mapped.window), 0, "the child that nothing is kept from");
  expect_equal(count_other(mapped.window.begin, kBytes, 99), int64_t{0}, "shares the memory: the test can fail");
}

// A program that has freed the memory may have something else there.
ddp_case(a_fork_finds_what_the_program_has_mapped_anew) {
  Mapped mapped;
  const os::PrivateInForks kept(mapped.window);
  void* const own =
      mmap(mapped.window.begin, kBytes / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  expect(own == mapped.window.begin, "mapped anew");
  std::memset(own, 4, kBytes / 2);
  const auto look = [](const os::FileWindow& window) {
    if (count_other(window.begin, kBytes / 2, 4) != 0) _exit(1);
    if (count_other(window.begin + kBytes / 2, kBytes / 2, 7) != 0) _exit(2);
    std::memset(window.begin, 5, kBytes);
  };
  expect_equal(status_of_child(look, mapped.window), 0, "the child");
  expect_equal(count_other(mapped.window.begin + kBytes / 2, kBytes / 2, 7), int64_t{0}, "what is still shared");
}
