// SPDX-License-Identifier: Apache-2.0
#include "os/life.hpp"

#include "support/check.hpp"

/// A child that prints its identity and then waits; it can end its first thread alone.
class Child : NotCopied {
 public:
  explicit Child(bool ends_first_thread = false) {
    int ends[2] = {-1, -1};
    expect(::pipe(ends) == 0, "a pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string life = os::this_life();
      std::thread([] { ::sleep(60); }).detach();
      if (::write(ends[1], life.data(), life.size()) < 0) ::_exit(1);
      ::close(ends[1]);
      if (ends_first_thread) ::pthread_exit(nullptr);
      ::sleep(60);
      ::_exit(0);
    }
    ::close(ends[1]);
    char bytes[256];
    for (ssize_t got = 0; (got = ::read(ends[0], bytes, sizeof bytes)) > 0;) life_.append(bytes, static_cast<size_t>(got));
    ::close(ends[0]);
  }
  ~Child() { reap(); }

  [[nodiscard]] const std::string& life() const { return life_; }
  void kill() const { ::kill(pid_, SIGKILL); }
  void stop() const {
    int status = 0;
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, &status, WUNTRACED);
  }
  /// Until it has ended, and its parent has not asked for it.
  void wait_until_zombie() const {
    siginfo_t about{};
    expect(::waitid(P_PID, static_cast<id_t>(pid_), &about, WEXITED | WNOWAIT) == 0, "it ends");
  }
  void reap() {
    if (pid_ <= 0) return;
    kill();
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  std::string life_;
};

ddp_case(a_process_has_ended_when_it_is_killed) {
  Child child;
  expect(!child.life().empty(), "the kernel says who it is");
  expect(!os::has_ended(child.life()), "it lives");
  child.kill();
  child.wait_until_zombie();
  expect(os::has_ended(child.life()), "nobody has waited for it yet");
  child.reap();
  expect(os::has_ended(child.life()), "and now");
}

ddp_case(a_process_that_is_stopped_lives) {
  Child child;
  child.stop();
  expect(!os::has_ended(child.life()), "it may go on");
}

ddp_case(a_process_without_its_first_thread_lives) {
  const Child child(true);
  for (int i = 0; i < 50; ++i) {
    expect(!os::has_ended(child.life()), "its other thread goes on");
    ::usleep(2'000);
  }
}

ddp_case(a_number_that_is_used_again_is_another_process) {
  const std::string own = os::this_life();
  expect(!os::has_ended(own), "this one lives");
  expect(os::has_ended(own.substr(0, own.rfind('/')) + "/1"), "it began at another time");
}

ddp_case(what_cannot_be_seen_has_not_ended) {
  for (const char* const life : {"", "nonsense", "b/1/1/1", "///", "b/1/-4/2"}) expect(!os::has_ended(life), life);
  const std::string own = os::this_life(), gone = own.substr(0, own.rfind('/')) + "/1";
  const size_t first = gone.find('/'), second = gone.find('/', first + 1);
  expect(!os::has_ended("another" + gone.substr(first)), "of another host");
  expect(!os::has_ended(gone.substr(0, first) + "/1" + gone.substr(second)), "of another process namespace");
}
