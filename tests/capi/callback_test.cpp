// SPDX-License-Identifier: Apache-2.0
// C++ programs throw: an exception that leaves a function which the library called becomes CALLBACK with its text, on
// whatever thread it was called, and the library continues. The end of a thread passes through.
#include <pthread.h>

#include <exception>

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/public_api.hpp"

void expect_callback(ddp_status status, const std::string& part) {
  if (status != DDP_ERROR_CALLBACK)
    throw std::runtime_error(std::string("expected CALLBACK, got ") + ddp_status_name(status) + ": " + ddp_last_error());
  expect_contains(ddp_last_error(), part);
  expect_equal(std::uncaught_exceptions(), 0, "exceptions that the program thinks are under way");
}

enum class Throw { kNothing, kException, kNumber, kEndOfThread };

/// What a callback of this test is to do; given as its user_data.
struct Order {
  std::atomic<Throw> now{Throw::kNothing};
  std::atomic<int> calls{0};
  void obey() {
    ++calls;
    if (now == Throw::kException) throw std::runtime_error("out of luck");
    if (now == Throw::kNumber) throw 7;
    if (now == Throw::kEndOfThread) pthread_exit(nullptr);
  }
};
const char* text_of(Throw kind) {
  return kind == Throw::kException ? "threw an exception: out of luck" : "not a std::exception";
}
constexpr Throw kBoth[] = {Throw::kException, Throw::kNumber};

/// A model of one parameter.
struct Small : NotCopied {
  ddp_group* group;
  ddp_model* model = nullptr;
  float value[8] = {}, grad[8] = {};
  Small(const std::string& place, int rank, int size, ddp_hook_fn hook = nullptr, void* user_data = nullptr,
        ddp_progress progress = DDP_PROGRESS_AUTO)
      : group(create_group(place, patient_options(rank, size))) {
    auto options = defaults<ddp_model_options>();
    options.progress = progress;
    OK(ddp_model_create(group, &options, &model));
    const ddp_tensor v{value, DDP_F32, DDP_CPU, 0, 1, {8}}, g{grad, DDP_F32, DDP_CPU, 0, 1, {8}};
    OK(ddp_model_add_parameter(model, "weights", &v, &g, nullptr));
    if (hook != nullptr) OK(ddp_model_set_hook(model, hook, user_data, nullptr));
    OK(ddp_model_commit(model, nullptr));
  }
  ~Small() {
    ddp_model_destroy(model);
    ddp_group_destroy(group);
  }
  ddp_status pass(float gradient) {
    OK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    for (float& element : grad) element = gradient;
    OK(ddp_model_mark_ready(model, 0, nullptr));
    return ddp_model_end_backward(model, nullptr);
  }
};

int32_t update(void* user_data, const ddp_update_slice*) {
  static_cast<Order*>(user_data)->obey();
  return 0;
}

ddp_case(an_update_that_throws_fails_the_step) {
  Small alone("local://alone", 0, 1);
  Order order;
  ddp_optimizer* optimizer = nullptr;
  OK(ddp_optimizer_create_custom(alone.model, nullptr, nullptr, nullptr, update, &order, nullptr, &optimizer));
  for (const Throw kind : kBoth) {
    OK(alone.pass(1));
    order.now = kind;
    expect_callback(ddp_optimizer_step(optimizer, nullptr), text_of(kind));
    expect_contains(ddp_last_error(), "\"weights\"");
    order.now = Throw::kNothing;
    OK(ddp_optimizer_step(optimizer, nullptr));
  }
  ddp_optimizer_destroy(optimizer);
}

int32_t hook(void* user_data, ddp_bucket* bucket) {
  static_cast<Order*>(user_data)->obey();
  ddp_tensor contents;
  ddp_group* group = nullptr;
  if (ddp_bucket_get_contents(bucket, &contents) != DDP_OK || ddp_bucket_get_group(bucket, &group) != DDP_OK) return 1;
  return ddp_group_all_reduce(group, &contents, DDP_AVERAGE, nullptr);
}

void passes_with_a_hook(const std::string& place, int rank, int size, ddp_progress progress) {
  Order order;
  Small small(place, rank, size, hook, &order, progress);
  for (const Throw kind : kBoth) {
    if (rank == size - 1) order.now = kind;
    expect_callback(small.pass(1), text_of(kind));
    expect_contains(ddp_last_error(), "rank " + std::to_string(size - 1));
    order.now = Throw::kNothing;
    OK(small.pass(static_cast<float>(rank + 1)));
    expect_equal(small.grad[3], static_cast<float>(size + 1) / 2, "the mean");
  }
  OK(ddp_group_barrier(small.group));
}

ddp_case(a_hook_that_throws_fails_the_pass_on_all_ranks) {
  for (const ddp_progress progress : {DDP_PROGRESS_CALLER, DDP_PROGRESS_THREAD}) {
    run_ranks(2, [&](int rank) { passes_with_a_hook("local://hook", rank, 2, progress); });
    const Folder folder;
    Procs procs(3, [&](int rank, Reporter&) { passes_with_a_hook("file://" + folder.path() + "/meet", rank, 3, progress); });
    expect_success(procs, 60'000);
  }
}

struct File {
  Order order;
  std::vector<unsigned char> bytes;
  size_t at = 0;
};
int32_t write(void* user_data, const void* data, int64_t bytes) {
  File& file = *static_cast<File*>(user_data);
  file.order.obey();
  const auto* first = static_cast<const unsigned char*>(data);
  file.bytes.insert(file.bytes.end(), first, first + bytes);
  return 0;
}
int64_t read(void* user_data, void* data, int64_t capacity) {
  File& file = *static_cast<File*>(user_data);
  file.order.obey();
  const size_t count = std::min(static_cast<size_t>(capacity), file.bytes.size() - file.at);
  std::copy_n(file.bytes.begin() + static_cast<std::ptrdiff_t>(file.at), count, static_cast<unsigned char*>(data));
  file.at += count;
  return static_cast<int64_t>(count);
}

ddp_case(a_reader_or_writer_that_throws_fails_the_call_on_all_ranks) {
  run_ranks(2, [](int rank) {
    Small small("local://files", rank, 2);
    File file;
    auto state = defaults<ddp_state>();
    state.model = small.model;
    for (const Throw kind : kBoth) {
      if (rank == 0) file.order.now = kind;
      expect_callback(ddp_state_save(&state, write, &file), text_of(kind));
      expect_callback(ddp_state_load(&state, read, &file, nullptr, nullptr), text_of(kind));
    }
    file.order.now = Throw::kNothing;
    file.bytes.clear();
    OK(ddp_state_save(&state, write, &file));
    OK(ddp_state_load(&state, read, &file, nullptr, nullptr));
  });
}

struct Shelf {
  Order order;
  std::mutex mutex;
  std::map<std::string, std::string> notes;
};
int32_t set(void* user_data, const char* key, const void* value, int64_t bytes) {
  Shelf& shelf = *static_cast<Shelf*>(user_data);
  shelf.order.obey();
  const std::lock_guard lock(shelf.mutex);
  shelf.notes[key] = std::string(static_cast<const char*>(value), static_cast<size_t>(bytes));
  return 0;
}
int32_t get(void* user_data, const char* key, void* value, int64_t capacity, int64_t, int64_t* out_bytes) {
  Shelf& shelf = *static_cast<Shelf*>(user_data);
  shelf.order.obey();
  const std::lock_guard lock(shelf.mutex);
  const auto found = shelf.notes.find(key);
  if (found == shelf.notes.end() || static_cast<int64_t>(found->second.size()) > capacity) return 1;
  std::copy(found->second.begin(), found->second.end(), static_cast<char*>(value));
  *out_bytes = static_cast<int64_t>(found->second.size());
  return 0;
}

ddp_case(a_store_that_throws_fails_the_meeting) {
  for (int rank = 0; rank < 2; ++rank)
    for (const Throw kind : kBoth) {
      Shelf shelf;
      shelf.order.now = kind;
      const ddp_store store{sizeof(ddp_store), set, get, &shelf};
      ddp_group_options options = patient_options(rank, 2);
      options.store = &store;
      ddp_group* group = nullptr;
      expect_callback(ddp_group_create("store://", &options, &group), text_of(kind));
      expect_contains(ddp_last_error(), rank == 0 ? "store->set" : "store->get");
    }
}

ddp_case(a_store_says_its_size) {
  ddp_store store{0, set, get, nullptr};
  ddp_group_options options = patient_options(0, 2);
  options.store = &store;
  ddp_group* group = nullptr;
  expect(ddp_group_create("store://", &options, &group) == DDP_ERROR_INVALID_ARGUMENT, "size 0");
  expect_contains(ddp_last_error(), "options->store: struct_size is 0");
  store.struct_size = 8;  // of a caller that knew no more
  expect(ddp_group_create("store://", &options, &group) == DDP_ERROR_INVALID_ARGUMENT, "without functions");
  expect_contains(ddp_last_error(), "needs options->store with set and get");
}

void release(void* user_data) { static_cast<Order*>(user_data)->obey(); }
void log_and_throw(void* user_data, ddp_log_level, const char*) { static_cast<Order*>(user_data)->obey(); }

/// The release function's exception is logged, and the log function throws on that.
ddp_case(functions_that_can_report_nothing_may_throw_too) {
  for (const Throw kind : kBoth) {
    Order released, logged;
    released.now = logged.now = kind;
    OK(ddp_set_log(DDP_LOG_WARNING, log_and_throw, &logged));
    {
      Small alone("local://alone", 0, 1);
      ddp_optimizer* optimizer = nullptr;
      OK(ddp_optimizer_create_custom(alone.model, nullptr, nullptr, nullptr, update, &released, release, &optimizer));
      ddp_optimizer_destroy(optimizer);
      expect(ddp_optimizer_create_custom(nullptr, nullptr, nullptr, nullptr, update, &released, release, &optimizer) ==
                 DDP_ERROR_INVALID_ARGUMENT,
             "a NULL model is refused");
    }
    OK(ddp_set_log(DDP_LOG_WARNING, nullptr, nullptr));
    expect_equal(released.calls.load(), 2, "calls of release");
    expect_equal(logged.calls.load(), 2, "calls of the log function");
    expect_equal(std::uncaught_exceptions(), 0, "exceptions under way");
  }
}

struct Cancelled {
  ddp_optimizer* optimizer = nullptr;
  std::atomic<bool> went_on{false};
};

#if !defined(__SANITIZE_ADDRESS__)  // whose preset has the undefined-behaviour sanitizer too: it faults GCC's own catch
                                    // clause for the end of a thread
ddp_case(a_thread_that_is_cancelled_in_a_callback_ends) {
  Small alone("local://alone", 0, 1);
  Cancelled what;
  const ddp_update_fn ends = [](void*, const ddp_update_slice*) -> int32_t {
    pthread_cancel(pthread_self());
    pthread_testcancel();
    return 0;
  };
  OK(ddp_optimizer_create_custom(alone.model, nullptr, nullptr, nullptr, ends, nullptr, nullptr, &what.optimizer));
  OK(alone.pass(1));
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void* given) -> void* {
        auto& cancelled = *static_cast<Cancelled*>(given);
        (void)ddp_optimizer_step(cancelled.optimizer, nullptr);
        cancelled.went_on = true;
        return nullptr;
      },
      &what);
  void* result = nullptr;
  pthread_join(thread, &result);
  expect(result == PTHREAD_CANCELED && !what.went_on.load(), "the thread was ended");
  OK(alone.pass(1));
  ddp_optimizer_destroy(what.optimizer);
}

/// On a thread of the library, too: no rank waits for it for ever, and the group is broken on all ranks.
ddp_case(a_function_that_ends_a_thread_of_the_library_breaks_the_group) {
  run_ranks(2, [](int rank) {
    Order order;
    Small small("local://ends", rank, 2, hook, &order, DDP_PROGRESS_THREAD);
    OK(small.pass(1));
    if (rank == 1) order.now = Throw::kEndOfThread;
    const ddp_status status = small.pass(1);
    expect_contains(ddp_last_error(), "ended the library's thread");
    expect(status == (rank == 1 ? DDP_ERROR_CALLBACK : DDP_ERROR_PEER_FAILED), "the status of the pass");
    if (rank == 0) expect_contains(ddp_last_error(), "rank 1 (");
    expect(ddp_group_status(small.group) == DDP_ERROR_PEER_FAILED, "the group is broken");
  });
}
#endif

/// Logging is no place to end a thread: the call ends first.
ddp_case(a_thread_that_is_cancelled_while_it_logs_ends_after_the_call) {
  static std::atomic<bool> went_on{false};
  OK(ddp_set_log(
      DDP_LOG_WARNING, [](void*, ddp_log_level, const char*) { pthread_testcancel(); }, nullptr));
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        pthread_cancel(pthread_self());
        Order order;
        order.now = Throw::kException;
        (void)ddp_model_set_hook(nullptr, hook, &order, release);
        went_on = order.calls == 1;
        pthread_testcancel();
        return nullptr;
      },
      nullptr);
  void* result = nullptr;
  pthread_join(thread, &result);
  OK(ddp_set_log(DDP_LOG_WARNING, nullptr, nullptr));
  expect(result == PTHREAD_CANCELED && went_on.load(), "the call returned, and then the thread ended");
}
