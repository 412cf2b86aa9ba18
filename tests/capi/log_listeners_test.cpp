// SPDX-License-Identifier: Apache-2.0
// ddp_add_log_listener and ddp_remove_log_listener: several listeners, which are told of group, rank, level and code; what
// they may call; and that none is called after its removal.

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/public_api.hpp"

struct Heard {
  std::vector<ddp_log_message> messages;
  std::vector<std::string> texts;

  static void take(void* user_data, const ddp_log_message* message, const char* text) {
    auto& heard = *static_cast<Heard*>(user_data);
    expect_equal(message->struct_size, int64_t{sizeof *message}, "struct_size");
    heard.messages.push_back(*message);
    heard.texts.emplace_back(text);
  }
  [[nodiscard]] std::string all() const {
    std::string lines;
    for (const std::string& text : texts) lines += text + "\n";
    return lines;
  }
};

int64_t add(ddp_log_level level, ddp_log_listener_fn fn, void* user_data) {
  int64_t number = 0;
  OK(ddp_add_log_listener(level, fn, user_data, &number));
  expect(number > 0, "a number");
  return number;
}

/// A message of the library of each level but ERROR: an empty model warns, and debugging tells of plans.
void make_it_log(ddp_group* group) {
  ddp_model* model = nullptr;
  OK(ddp_model_create(group, nullptr, &model));
  OK(ddp_model_commit(model, nullptr));
  ddp_model_destroy(model);
}
constexpr const char* kWarning = "the model has no parameters";

class Silence {
 public:
  Silence() { OK(ddp_set_log(DDP_LOG_OFF, nullptr, nullptr)); }
  ~Silence() { (void)ddp_set_log(DDP_LOG_WARNING, nullptr, nullptr); }
  Silence(const Silence&) = delete;
};

ddp_case(each_listener_gets_its_level) {
  const Silence silence;
  ddp_group* const group = create_group("local://levels", patient_options(0, 1));
  Heard debug, warning, none;
  const int64_t numbers[] = {add(DDP_LOG_DEBUG, Heard::take, &debug), add(DDP_LOG_WARNING, Heard::take, &warning),
                             add(DDP_LOG_OFF, Heard::take, &none)};
  make_it_log(group);
  for (const int64_t number : numbers) OK(ddp_remove_log_listener(number));
  make_it_log(group);
  expect_equal(warning.texts.size(), size_t{1}, warning.all());
  expect_contains(warning.all(), kWarning);
  expect(debug.texts.size() > 1, debug.all());
  expect_equal(none.texts.size(), size_t{0}, none.all());
  for (const ddp_log_message& message : warning.messages) {
    expect(message.level == DDP_LOG_WARNING && message.code == DDP_OK && message.reserved == 0, "level and code");
    expect_equal(message.group, ddp_group_get_number(group), "the group");
    expect_equal(message.rank, 0, "the rank");
  }
  ddp_group_destroy(group);
}

/// Also of what threads of the library log, which a rank starts.
ddp_case(a_message_tells_its_group_and_rank) {
  const Folder folder;
  Procs procs(2, [&](int rank, Reporter&) {
    OK(ddp_set_log(DDP_LOG_OFF, nullptr, nullptr));
    Heard heard;
    const int64_t number = add(DDP_LOG_DEBUG, Heard::take, &heard);
    ddp_group* const other = create_group("local://other", patient_options(0, 1));
    ddp_group* const group = create_group("file://" + folder.path() + "/meet", patient_options(rank, 2));
    const int64_t first = ddp_group_get_number(other);
    expect(first > 0, "the first group");
    expect_equal(ddp_group_get_number(group), first + 1, "the second");
    make_it_log(group);
    ddp_group* half = nullptr;
    OK(ddp_group_split(group, rank, 0, nullptr, &half));
    expect_equal(ddp_group_get_number(half), first + 2, "a part of it");
    make_it_log(half);
    OK(ddp_remove_log_listener(number));
    int of_group = 0, of_half = 0;
    for (size_t at = 0; at < heard.texts.size(); ++at) {
      const bool warns = heard.texts[at].find(kWarning) != std::string::npos;
      if (warns && heard.messages[at].group == first + 1)
        ++of_group, expect_equal(heard.messages[at].rank, rank, "of the group");
      if (warns && heard.messages[at].group == first + 2) ++of_half, expect_equal(heard.messages[at].rank, 0, "of the part");
      expect(heard.messages[at].group <= first + 2, heard.texts[at]);
    }
    expect_equal(of_group, 1, heard.all());
    expect_equal(of_half, 1, heard.all());
    ddp_group_destroy(half);
    ddp_group_destroy(group);
    ddp_group_destroy(other);
  });
  expect_success(procs);
  expect_equal(ddp_group_get_number(nullptr), int64_t{0}, "no group");
}

/// What a listener does inside its call.
struct Inside {
  ddp_group* group = nullptr;
  int64_t self = 0, next = 0, added = 0;
  int calls = 0;
  Heard later;
};

void removes_itself(void* user_data, const ddp_log_message*, const char*) {
  auto& inside = *static_cast<Inside*>(user_data);
  ++inside.calls;
  OK(ddp_remove_log_listener(inside.self));
  OK(ddp_remove_log_listener(inside.next));
  inside.added = add(DDP_LOG_WARNING, Heard::take, &inside.later);
  make_it_log(inside.group);  // goes to stderr alone, and nothing waits
}

ddp_case(a_listener_may_add_and_remove_inside_its_call) {
  const Silence silence;
  Inside inside;
  inside.group = create_group("local://inside", patient_options(0, 1));
  ddp_group* const other = create_group("local://other-inside", patient_options(0, 1));
  Heard next;
  inside.self = add(DDP_LOG_WARNING, removes_itself, &inside);
  inside.next = add(DDP_LOG_WARNING, Heard::take, &next);
  make_it_log(other);
  expect_equal(inside.calls, 1, "it was called");
  expect_equal(next.texts.size(), size_t{0}, "the one behind it was removed before its turn");
  expect_equal(inside.later.texts.size(), size_t{0}, "the new one does not get the message");
  make_it_log(other);
  expect_equal(inside.calls, 1, "it has removed itself");
  expect_equal(inside.later.texts.size(), size_t{1}, "the new one gets the next message");
  OK(ddp_remove_log_listener(inside.added));
  ddp_group_destroy(other);
  ddp_group_destroy(inside.group);
}

/// Its memory is poisoned when the removal has returned.
struct Mortal {
  std::atomic<bool> lives{true};
  std::atomic<int> calls{0}, late{0};
  static void take(void* user_data, const ddp_log_message*, const char*) {
    auto& self = *static_cast<Mortal*>(user_data);
    for (int look = 0; look < 50; ++look) {
      if (!self.lives.load()) ++self.late;
      std::this_thread::yield();
    }
    ++self.calls;
  }
};

ddp_case(nothing_is_called_after_its_removal) {
  const Silence silence;
  std::atomic<bool> stop{false};
  std::vector<std::thread> loggers;
  for (int which = 0; which < 3; ++which)
    loggers.emplace_back([&, which] {
      ddp_group* const group = create_group("local://logger" + std::to_string(which), patient_options(0, 1));
      while (!stop.load()) {
        make_it_log(group);
        std::this_thread::sleep_for(std::chrono::microseconds(20));  // else three of them keep an owner from the lock
      }
      ddp_group_destroy(group);
    });
  std::vector<std::thread> owners;
  std::atomic<int> late{0}, calls{0};
  for (int which = 0; which < 2; ++which)
    owners.emplace_back([&] {
      for (int round = 0; round < 150; ++round) {
        Mortal mortal;
        const int64_t number = add(DDP_LOG_DEBUG, Mortal::take, &mortal);
        while (round % 3 == 0 && mortal.calls.load() == 0) std::this_thread::yield();
        OK(ddp_remove_log_listener(number));
        mortal.lives.store(false);
        std::this_thread::yield();
        late += mortal.late.load();
        calls += mortal.calls.load();
      }
    });
  for (std::thread& owner : owners) owner.join();
  stop.store(true);
  for (std::thread& logger : loggers) logger.join();
  expect_equal(late.load(), 0, "calls after the removal");
  expect(calls.load() >= 100, "and calls before it");
}

void throws(void*, const ddp_log_message*, const char*) { throw std::runtime_error("the listener is broken"); }

ddp_case(the_others_hear_what_one_fails_on) {
  const Silence silence;
  ddp_group* const group = create_group("local://throws", patient_options(0, 1));
  Heard heard;
  const int64_t first = add(DDP_LOG_WARNING, throws, nullptr), second = add(DDP_LOG_WARNING, Heard::take, &heard);
  make_it_log(group);
  OK(ddp_remove_log_listener(first));
  OK(ddp_remove_log_listener(second));
  expect_equal(heard.texts.size(), size_t{1}, heard.all());
  ddp_group_destroy(group);
}

ddp_case(a_fork_logs_to_the_same_listeners) {
  const Silence silence;
  Heard heard;
  const int64_t number = add(DDP_LOG_WARNING, Heard::take, &heard);
  const pid_t child = fork();
  if (child == 0) {
    ddp_group* const group = create_group("local://child", patient_options(0, 1));
    make_it_log(group);
    _exit(heard.texts.size() == 1 && ddp_remove_log_listener(number) == DDP_OK ? 0 : 1);
  }
  int status = 0;
  expect(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child");
  OK(ddp_remove_log_listener(number));
  expect(heard.texts.empty(), "the parent has heard nothing");
}

ddp_case(wrong_arguments_are_refused) {
  int64_t number = 7;
  const auto refused = [](ddp_status status) { return status == DDP_ERROR_INVALID_ARGUMENT; };
  expect(refused(ddp_add_log_listener(DDP_LOG_INFO, nullptr, nullptr, &number)), "no function");
  expect(refused(ddp_add_log_listener(DDP_LOG_INFO, Heard::take, nullptr, nullptr)), "no place for the number");
  expect(refused(ddp_add_log_listener(static_cast<ddp_log_level>(5), Heard::take, nullptr, &number)), "no level");
  expect(refused(ddp_add_log_listener(static_cast<ddp_log_level>(-1), Heard::take, nullptr, &number)), "no level");
  expect_equal(number, int64_t{7}, "untouched");
  OK(ddp_remove_log_listener(0));
  expect(refused(ddp_remove_log_listener(-1)), "a number below 0");
  expect(refused(ddp_remove_log_listener(1'000'000)), "a number that was never given out");
  Heard heard;
  const int64_t added = add(DDP_LOG_OFF, Heard::take, &heard);
  OK(ddp_remove_log_listener(added));
  OK(ddp_remove_log_listener(added));
}

ddp_case(there_is_room_for_64) {
  std::vector<int64_t> numbers;
  Heard heard;
  for (int at = 0; at < 64; ++at) numbers.push_back(add(DDP_LOG_OFF, Heard::take, &heard));
  int64_t one_more = 7;
  expect(ddp_add_log_listener(DDP_LOG_OFF, Heard::take, &heard, &one_more) == DDP_ERROR_OUT_OF_MEMORY, "65");
  expect_equal(one_more, int64_t{7}, "untouched");
  OK(ddp_remove_log_listener(numbers[20]));
  numbers[20] = add(DDP_LOG_OFF, Heard::take, &heard);
  for (const int64_t number : numbers) OK(ddp_remove_log_listener(number));
}
