// SPDX-License-Identifier: Apache-2.0
// Sends and receives of the fake NCCL.

#include "unit/fake_gpu/fixture.hpp"

using namespace ddp::test::fake_gpu;

/// Two messages for each pair, in a ring and back; all at once.
fake_gpu_case(what_is_sent_is_received_in_order) {
  on_world(3, [](int32_t rank, void* comm) {
    const auto r = static_cast<float>(rank);
    float* const own = make_array<float>({r, 10 * r});
    float* const others = make_array<float>({-1, -1, -1, -1});
    check_equal(n.group_start(), 0);
    for (const int32_t peer : {(rank + 1) % 3, (rank + 2) % 3}) {
      float* const to = others + (peer == (rank + 1) % 3 ? 0 : 2);
      check_equal(n.send(own, 1, DDP_F32, peer, comm, nullptr), 0);
      check_equal(n.receive(to, 1, DDP_F32, peer, comm, nullptr), 0);
      check_equal(n.send(own + 1, 1, DDP_F32, peer, comm, nullptr), 0);
      check_equal(n.receive(to + 1, 1, DDP_F32, peer, comm, nullptr), 0);
    }
    check_equal(n.group_end(), 0);
    assert_ok(api.stream_synchronize(nullptr));
    const auto next = static_cast<float>((rank + 1) % 3), after = static_cast<float>((rank + 2) % 3);
    check(values_of(others, 4) == (std::vector<float>{next, 10 * next, after, 10 * after}));
  });
  check(violations().empty());
}

fake_gpu_case(bytes_that_nobody_receives_are_a_violation) {
  on_world(2, [](int32_t rank, void* comm) {
    float* const data = make_array<float>({1, 2});
    check_equal(n.group_start(), 0);
    if (rank == 0) check_equal(n.send(data, 2, DDP_F32, 1, comm, nullptr), 0);
    if (rank == 1) check_equal(n.receive(data, 1, DDP_F32, 0, comm, nullptr), 0);
    check_equal(n.group_end(), 0);
    assert_ok(api.stream_synchronize(nullptr));
  });
  check_equal(violations().size(), size_t{1});
  check(violations()[0].find("receives 4 bytes from rank 0, which sends 8") != std::string::npos);
  clear_violations();
}
