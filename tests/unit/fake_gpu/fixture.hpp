// SPDX-License-Identifier: Apache-2.0
// What the tests of the fake GPU share.
#pragma once

#include <future>

#include "ddp/types.h"
#include "support/check.hpp"
#include "support/fake_gpu/fake_gpu.hpp"

namespace ddp::test::fake_gpu {

inline const ddp_gpu_table& api = table();

/// Every case begins anew and leaves no violation behind.
inline void without_violations(void (*body)()) {
  reset();
  body();
  for (const std::string& text : violations()) print_error("%s\n", text.c_str());
  expect_equal(violations().size(), size_t{0}, "violations");
}

#define fake_gpu_case(function)                                                                             \
  void function();                                                                                          \
  [[maybe_unused]] const bool function##_is_listed =                                                        \
      ddp::test::list_case(__FILE__, #function, [] { ddp::test::fake_gpu::without_violations(function); }); \
  void function()
#define check(condition) ddp::test::expect((condition), #condition)
#define check_equal(got, wanted) ddp::test::expect_equal(static_cast<int64_t>(got), static_cast<int64_t>(wanted), #got)

inline void assert_ok(int32_t code) { expect_equal(code, 0, api.error_text(code)); }

/// One violation with this in it, which is then forgotten.
inline void assert_violation(const std::string& part) {
  const std::vector<std::string> all = violations();
  for (const std::string& text : all) expect_contains(text, part);
  expect_equal(all.size(), size_t{1}, "violations");
  clear_violations();
}

inline void* make_stream() {
  void* stream = nullptr;
  assert_ok(api.stream_create(&stream, 0));
  return stream;
}

inline void* make_event() {
  void* event = nullptr;
  assert_ok(api.event_create(&event, 0));
  return event;
}

template <class T>
T* make_array(const std::vector<T>& values) {
  void* memory = nullptr;
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  assert_ok(api.alloc(&memory, bytes));
  check(poke(memory, values.data(), bytes));
  return static_cast<T*>(memory);
}

template <class T>
std::vector<T> values_of(const T* memory, size_t count) {
  std::vector<T> values(count);
  check(peek(values.data(), memory, static_cast<int64_t>(count * sizeof(T))));
  return values;
}

/// On another thread; get() ends with its failure.
template <class Body>
std::future<void> later(Body&& body) {
  return std::async(std::launch::async, std::forward<Body>(body));
}

/// On threads, each with the device of its rank.
inline void on_ranks(int32_t count, const std::function<void(int32_t rank)>& body) {
  std::vector<std::future<void>> ranks;
  for (int32_t rank = 0; rank < count; ++rank)
    ranks.push_back(later([&body, rank] {
      assert_ok(api.set_device(rank));
      body(rank);
    }));
  for (std::future<void>& rank : ranks) rank.get();
}

inline const ddp_nccl_table& n = nccl();

struct Id {
  char bytes[DDP_NCCL_ID_BYTES];
};

inline Id make_id() {
  Id id;
  check_equal(n.get_unique_id(&id), 0);
  return id;
}

/// What a call that returned before it was over has come to.
inline int32_t over(void* comm) {
  int32_t result = 0;
  do check_equal(n.comm_async_error(comm, &result), 0);
  while (n.error_kind(result) == DDP_NCCL_IN_PROGRESS);
  return result;
}

/// body(rank, communicator) on a thread with a device for each rank; communicators are destroyed afterwards.
template <class Body>
void on_world(int32_t size, Body&& body) {
  const Id id = make_id();
  on_ranks(size, [&](int32_t rank) {
    void* comm = nullptr;
    check_equal(n.comm_init(&comm, size, &id, rank, "test", 0), 0);
    body(rank, comm);
    check_equal(n.comm_finalize(comm), 0);
    check_equal(n.comm_destroy(comm), 0);
  });
}

}  // namespace ddp::test::fake_gpu
