// SPDX-License-Identifier: Apache-2.0
// What tests of ddp_group_share have in common: arrays of floats, and a body that runs in the processes of a group.
#pragma once

#include "support/on_processes.hpp"
#include "support/public_api.hpp"

namespace ddp::test {

inline constexpr int64_t kCount = (int64_t{3} << 18) + 77;  // floats: 3 MiB and some

/// Floats that begin `shift` elements behind the begin of a page.
struct Floats {
  explicit Floats(int64_t shift = 16, int64_t number = kCount) : count(number), all(static_cast<size_t>(number) + 4096) {
    auto at = reinterpret_cast<uintptr_t>(all.data());
    at = (at + 4095) / 4096 * 4096 + static_cast<uintptr_t>(shift) * sizeof(float);
    data = reinterpret_cast<float*>(at);
  }
  [[nodiscard]] ddp_tensor tensor() const { return {data, DDP_F32, DDP_CPU, 0, 1, {count}}; }
  [[nodiscard]] int64_t bytes() const { return count * static_cast<int64_t>(sizeof(float)); }
  void fill(int rank, int round) const {
    for (int64_t i = 0; i < count; ++i)
      data[i] = 1.0F / static_cast<float>(1 + (i * 7 + rank * 13 + round) % 1009) * static_cast<float>(rank + 1);
  }
  int64_t count;
  std::vector<float> all;
  float* data = nullptr;
};

inline bool same(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, static_cast<size_t>(count) * sizeof(float)) == 0;
}

inline void expect_status(ddp_status expected, ddp_status status, const std::string& what) {
  expect_equal(static_cast<int>(status), static_cast<int>(expected), what + ": " + ddp_last_error());
}

/// `body(group, rank)` in each of `size` processes.
inline void in_processes(int size, int64_t limit_ms, const std::function<void(ddp_group*, int)>& body, int on_a_host = 0) {
  const Folder folder;
  Procs procs(size, [&](int rank, Reporter&) {
    if (on_a_host > 0) setenv("DDP_TEST_HOST", std::to_string(rank / on_a_host).c_str(), 1);
    ddp_group* const group = create_group("file://" + folder.path() + "/meet", patient_options(rank, size));
    body(group, rank);
    (void)ddp_group_barrier(group);  // a body may have destroyed it
    ddp_group_destroy(group);
  });
  expect_success(procs, limit_ms);
}

}  // namespace ddp::test
