// SPDX-License-Identifier: Apache-2.0
// Waiting in shared memory ends when what is waited for is there, when the group broke, and when its time is over, whatever
// else runs on the core.
#include "shm/waiter.hpp"

#include "control/solo.hpp"
#include "support/check.hpp"

/// This rank, and one that does nothing.
struct LateNeighbour {
  bootstrap::Failure failure;
  shm::Mesh mesh;
  shm::Region other{int64_t{256} << 20};
  std::unique_ptr<bootstrap::Control> control = bootstrap::make_solo_control();
  collective::TransportContext context;

  explicit LateNeighbour(int32_t timeout_ms) {
    mesh.size = 2;
    mesh.threads = true;
    mesh.own = std::make_shared<shm::Region>(int64_t{256} << 20);
    mesh.mappings = {mesh.own->mapping(), other.mapping()};
    mesh.pages = {&mesh.first_page(0), &mesh.first_page(1)};
    context.control = control.get();
    context.failure = &failure;
    context.options.timeout_ms = timeout_ms;
  }
};

std::atomic<int64_t> busy_ns{0};
/// A core that another thread takes for 50 ms whenever this one yields.
int64_t clock_of_a_busy_core() noexcept { return busy_ns.fetch_add(50'000'000); }

ddp_case(what_is_there_is_not_waited_for) {
  LateNeighbour world(100);
  const shm::Waiter waiter(world.mesh, world.context);
  int asked = 0;
  waiter.wait([&] { return ++asked == 3; }, [] { return Error(DDP_ERROR_TIMED_OUT, "nobody"); });
  expect_equal(asked, 3, "looks");
}

ddp_case(a_wait_whose_time_is_over_says_who_is_missing) {
  LateNeighbour world(50);
  const shm::Waiter waiter(world.mesh, world.context);
  expect_error(DDP_ERROR_TIMED_OUT,
               [&] { waiter.wait([] { return false; }, [] { return Error(DDP_ERROR_TIMED_OUT, "rank 1 is late"); }); },
               {"rank 1 is late"});
}

ddp_case(a_broken_group_ends_a_wait_with_its_cause) {
  LateNeighbour world(60'000);
  const shm::Waiter waiter(world.mesh, world.context);
  (void)world.failure.set(Error(DDP_ERROR_PEER_FAILED, "rank 1 died"));
  expect_error(DDP_ERROR_PEER_FAILED,
               [&] { waiter.wait([] { return false; }, [] { return Error(DDP_ERROR_TIMED_OUT, ""); }); }, {"rank 1 died"});
}

// Giving way hundreds of times to a program that keeps the core each time would put the deadline off by as much.
ddp_case(a_core_that_others_take_does_not_put_the_deadline_off) {
  LateNeighbour world(100);
  const shm::Waiter waiter(world.mesh, world.context);
  os::set_clock(&clock_of_a_busy_core);
  int asked = 0;
  (void)expect_error(DDP_ERROR_TIMED_OUT, [&] {
    waiter.wait([&] { return ++asked < 0; }, [] { return Error(DDP_ERROR_TIMED_OUT, "rank 1 is late"); });
  });
  os::set_clock(nullptr);
  expect(asked < 1000, "few looks after the core was lost: " + std::to_string(asked));
}
