// SPDX-License-Identifier: Apache-2.0
// Teams, windows and the kernels that use them, on the fake GPU: what they compute, and which misuse it sees.
#include <atomic>
#include <limits>
#include <thread>

#include "unit/fake_gpu/fixture.hpp"

namespace {

using namespace ddp;
using namespace ddp::test;
using namespace ddp::test::fake_gpu;

constexpr int64_t kCount = 8;  // elements of gradients, and of values

/// One rank's memory: gradients, then values, of one piece; and what a kernel needs.
struct Side {
  void* comm;
  float* memory = nullptr;
  void* window = nullptr;
  void* team = nullptr;
  void* stream = make_stream();
  void* host = nullptr;  // of the word that ends waits
  ddp_gpu_multicast over{};

  Side(void* of, int32_t rank) : comm(of) {
    void* live = nullptr;
    assert_ok(api.host_alloc(&host, &live, 4));
    void* out = nullptr;
    check_equal(n.mem_alloc(&out, 2 * kCount * 4), 0);
    memory = static_cast<float*>(out);
    std::vector<float> start(2 * kCount, 100);
    for (int64_t i = 0; i < kCount; ++i) start[static_cast<size_t>(i)] = static_cast<float>(i + 10 * rank);
    check(poke(memory, start.data(), 2 * kCount * 4));
    check_equal(n.team_create(comm, 4, &team), 0);
    check_equal(n.team_has_multicast(team), 1);
    check_equal(n.window_register(comm, memory, 2 * kCount * 4, &window), 0);
    over = {team, window, window, memory, memory, memory, memory + kCount, kCount * 4, static_cast<uint32_t*>(live),
            4,    DDP_F32};
  }
  /// SGD with rate 1 on some elements.
  [[nodiscard]] int32_t launch(int64_t first, int64_t count) const {
    ddp_gpu_update update{};
    update.value = memory + kCount + first;
    update.grad = memory + first;
    update.count = count;
    ddp_gpu_sgd_rule rule{};
    rule.rate = 1;
    const ddp_gpu_shape shape{1, std::numeric_limits<double>::infinity(), nullptr, 2, &over};
    return api.sgd(&update, count > 0 ? 1 : 0, &rule, 1, DDP_F32, &shape, nullptr, stream);
  }
  void wait() const { assert_ok(api.stream_synchronize(stream)); }
  void end() {
    wait();
    check_equal(n.window_deregister(comm, window), 0);
    check_equal(n.team_destroy(comm, team), 0);
    check_equal(n.mem_free(memory), 0);
    assert_ok(api.host_free(host));
    assert_ok(api.stream_destroy(stream));
  }
};

/// Rank 0 updates five elements and rank 1 three; a third one has none and is waited for too.
void a_kernel_reads_sums_and_writes_to_all(void**) {
  on_world(3, [](int32_t rank, void* comm) {
    Side side(comm, rank);
    assert_ok(side.launch(rank == 0 ? 0 : 5, rank == 0 ? 5 : rank == 1 ? 3 : 0));
    side.wait();
    const std::vector<float> values = values_of(side.memory + kCount, kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      const float mean = static_cast<float>(3 * i + 30) / 2;
      check_equal(values[static_cast<size_t>(i)] * 2, (100 - mean) * 2);
      const bool own = rank == 0 ? i < 5 : rank == 1 && i >= 5;
      const float grad = values_of(side.memory, kCount)[static_cast<size_t>(i)];
      check_equal(grad * 2, own ? mean * 2 : static_cast<float>(i + 10 * rank) * 2);
    }
    side.end();
  });
  check_equal(live().total(), 0);
}

void only_the_hosts_word_ends_a_wait(void**) {
  on_world(2, [](int32_t rank, void* comm) {
    Side side(comm, rank);
    if (rank == 0) {
      assert_ok(side.launch(0, 5));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      check_equal(pending(side.stream), 1);
      __atomic_store_n(static_cast<uint32_t*>(side.host), 1u, __ATOMIC_SEQ_CST);
      side.wait();
      check_equal(values_of(side.memory + kCount, 1)[0], 100);
    }
    side.end();
  });
}

void ranks_that_make_different_windows_are_a_violation(void**) {
  on_world(2, [](int32_t rank, void* comm) {
    void* memory = nullptr;
    check_equal(n.mem_alloc(&memory, 64 * (rank + 1)), 0);
    void* window = nullptr;
    check_equal(n.window_register(comm, memory, 64 * (rank + 1), &window), 0);
    check_equal(n.window_deregister(comm, window), 0);
    check_equal(n.mem_free(memory), 0);
  });
  assert_violation("disagree about what they make together");
}

/// Rank 1 has a window less behind it, so its next one would lie elsewhere.
void ranks_that_gave_back_different_windows_are_a_violation(void**) {
  on_world(2, [](int32_t rank, void* comm) {
    void *memory[2] = {}, *window[2] = {};
    for (int k = 0; k < 2; ++k) {
      check_equal(n.mem_alloc(&memory[k], 64), 0);
      check_equal(n.window_register(comm, memory[k], 64, &window[k]), 0);
      if (k == 0 && rank == 1) check_equal(n.window_deregister(comm, window[0]), 0);
    }
    for (int k = rank; k < 2; ++k) check_equal(n.window_deregister(comm, window[k]), 0);
    for (void* const each : memory) check_equal(n.mem_free(each), 0);
  });
  assert_violation("disagree about what they make together");
}

void a_window_that_only_some_ranks_register_is_a_violation(void**) {
  reset(Options{.nccl_looks = 2});
  const Id id = make_id();
  std::atomic<bool> registered{false};
  on_ranks(2, [&](int32_t rank) {
    void* comm = nullptr;
    check_equal(n.error_kind(n.comm_init(&comm, 2, &id, rank, "", 0)), DDP_NCCL_IN_PROGRESS);
    check_equal(over(comm), 0);
    void *memory = nullptr, *window = nullptr;
    if (rank == 0) {
      check_equal(n.mem_alloc(&memory, 64), 0);
      check_equal(n.error_kind(n.window_register(comm, memory, 64, &window)), DDP_NCCL_IN_PROGRESS);
      int32_t result = 0;
      for (int k = 0; k < 20; ++k) {
        check_equal(n.comm_async_error(comm, &result), 0);
        check_equal(n.error_kind(result), DDP_NCCL_IN_PROGRESS);
      }
      check_equal(n.comm_destroy(comm), 0);
      check_equal(n.mem_free(memory), 0);
      registered = true;
    }
    while (!registered) std::this_thread::yield();
    if (rank == 1) check_equal(n.comm_abort(comm), 0);
  });
  for (const std::string& text : violations())
    check(text.find("only some ranks have come") != std::string::npos || text.find("in progress") != std::string::npos);
  check(!violations().empty());
  clear_violations();
}

void an_abort_ends_the_making_of_a_window(void**) {
  reset(Options{.nccl_looks = 2});
  const Id id = make_id();
  on_ranks(2, [&](int32_t rank) {
    void* comm = nullptr;
    check_equal(n.error_kind(n.comm_init(&comm, 2, &id, rank, "", 0)), DDP_NCCL_IN_PROGRESS);
    check_equal(over(comm), 0);
    void *memory = nullptr, *window = nullptr;
    if (rank == 0) {
      check_equal(n.mem_alloc(&memory, 64), 0);
      check_equal(n.error_kind(n.window_register(comm, memory, 64, &window)), DDP_NCCL_IN_PROGRESS);
      check_equal(n.error_kind(over(comm)), DDP_NCCL_REMOTE);
    }
    check_equal(n.comm_abort(comm), 0);
    if (rank == 0) check_equal(n.mem_free(memory), 0);
  });
}

void unmapping_under_a_kernel_is_a_violation(void**) {
  on_world(2, [](int32_t rank, void* comm) {
    Side side(comm, rank);
    if (rank == 0) {
      assert_ok(side.launch(0, 5));
      check_equal(n.window_deregister(comm, side.window), 0);
      __atomic_store_n(static_cast<uint32_t*>(side.host), 1u, __ATOMIC_SEQ_CST);
      side.wait();
    } else {
      check_equal(n.window_deregister(comm, side.window), 0);
    }
    check_equal(n.team_destroy(comm, side.team), 0);
    check_equal(n.mem_free(side.memory), 0);
    assert_ok(api.host_free(side.host));
    assert_ok(api.stream_destroy(side.stream));
  });
  assert_violation("deregistered while a kernel may use it");
}

void memory_under_a_window_is_not_freed(void**) {
  on_world(2, [](int32_t rank, void* comm) {
    Side side(comm, rank);
    if (rank == 0) check_equal(n.mem_free(side.memory), 0);
    check_equal(n.window_deregister(comm, side.window), 0);
    check_equal(n.team_destroy(comm, side.team), 0);
    if (rank == 1) check_equal(n.mem_free(side.memory), 0);
    assert_ok(api.host_free(side.host));
    assert_ok(api.stream_destroy(side.stream));
  });
  assert_violation("over which there is a window");
}

void ranks_that_launch_different_kernels_are_a_violation(void**) {
  on_world(2, [](int32_t rank, void* comm) {
    Side side(comm, rank);
    side.over.blocks = 3 + rank;
    assert_ok(side.launch(0, 0));
    side.end();
  });
  assert_violation("disagree about kernel 0");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      fake_gpu_test(a_kernel_reads_sums_and_writes_to_all),
      fake_gpu_test(only_the_hosts_word_ends_a_wait),
      fake_gpu_test(ranks_that_make_different_windows_are_a_violation),
      fake_gpu_test(ranks_that_gave_back_different_windows_are_a_violation),
      fake_gpu_test(a_window_that_only_some_ranks_register_is_a_violation),
      fake_gpu_test(an_abort_ends_the_making_of_a_window),
      fake_gpu_test(unmapping_under_a_kernel_is_a_violation),
      fake_gpu_test(memory_under_a_window_is_not_freed),
      fake_gpu_test(ranks_that_launch_different_kernels_are_a_violation),
  };
  return cmocka_run_group_tests_name("fake_gpu_multicast", tests, nullptr, nullptr);
}
