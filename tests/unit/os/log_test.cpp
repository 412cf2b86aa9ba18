// SPDX-License-Identifier: Apache-2.0
#include "os/log.hpp"

#include "support/check.hpp"

struct Received {
  std::vector<std::pair<ddp_log_level, std::string>> messages;
  static void take(void* user_data, ddp_log_level level, const char* text) {
    static_cast<Received*>(user_data)->messages.emplace_back(level, text);
  }
};

/// Sends the log to a list for the length of a test.
class Capture : public Received {
 public:
  explicit Capture(ddp_log_level level) { os::set_log_sink(level, &Received::take, this); }
  ~Capture() { os::set_log_sink(DDP_LOG_WARNING, nullptr, nullptr); }
  Capture(const Capture&) = delete;
};

ddp_case(a_message_reaches_the_receiver_formatted) {
  Capture capture(DDP_LOG_INFO);
  os::log(DDP_LOG_ERROR, "rank %d of %d", 2, 4);
  expect_equal(capture.messages.size(), size_t{1}, "messages");
  expect(capture.messages[0].first == DDP_LOG_ERROR, "level");
  expect_equal(capture.messages[0].second, std::string("rank 2 of 4"), "text");
}

ddp_case(messages_below_the_level_are_dropped) {
  Capture capture(DDP_LOG_WARNING);
  os::log(DDP_LOG_DEBUG, "no");
  os::log(DDP_LOG_INFO, "no");
  os::log(DDP_LOG_WARNING, "yes");
  expect_equal(capture.messages.size(), size_t{1}, "messages");
  expect(!os::log_enabled(DDP_LOG_INFO) && os::log_enabled(DDP_LOG_WARNING) && os::log_enabled(DDP_LOG_ERROR), "levels");
}

ddp_case(off_silences_everything) {
  Capture capture(DDP_LOG_OFF);
  os::log(DDP_LOG_ERROR, "no");
  expect(capture.messages.empty(), "nothing was received");
}

ddp_case(a_long_message_is_cut) {
  Capture capture(DDP_LOG_INFO);
  os::log(DDP_LOG_ERROR, "%s", std::string(100000, 'x').c_str());
  const size_t length = capture.messages.at(0).second.size();
  expect(length > 500 && length < 5000, "length " + std::to_string(length));
}

ddp_case(messages_of_many_threads_come_one_at_a_time) {
  Capture capture(DDP_LOG_INFO);  // the list is not protected: the log must do that
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) os::log(DDP_LOG_INFO, "%d", t);
    });
  for (auto& thread : threads) thread.join();
  expect_equal(capture.messages.size(), size_t{2000}, "messages");
}

/// What a fresh process with DDP_LOG=`level` writes to stderr for one message of each level.
std::string stderr_of_child(const char* level) {
  int ends[2];
  expect(pipe(ends) == 0, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    setenv("DDP_LOG", level, 1);
    dup2(ends[1], STDERR_FILENO);
    execl("/proc/self/exe", "test.unit.os.log", "--speak", static_cast<char*>(nullptr));
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(got));
  close(ends[0]);
  int status = 0;
  expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended well");
  return text;
}

ddp_case(stderr_and_the_environments_level_are_the_default) {
  const std::string error = "libddp error: e\n", warning = "libddp warning: w\n", info = "libddp info: i\n",
                    debug = "libddp debug: d\n";
  const std::pair<const char*, std::string> cases[] = {{"debug", debug + info + warning + error},
                                                       {"info", info + warning + error},
                                                       {"warning", warning + error},
                                                       {"error", error},
                                                       {"off", ""},
                                                       {"nonsense", warning + error}};
  for (const auto& [level, expected] : cases) expect_equal(stderr_of_child(level), expected, level);
}

int speak() {
  os::log(DDP_LOG_DEBUG, "d");
  os::log(DDP_LOG_INFO, "i");
  os::log(DDP_LOG_WARNING, "w");
  os::log(DDP_LOG_ERROR, "e");
  return 0;
}

ddp_before_cases(if (argc > 1) std::exit(speak()));
