// SPDX-License-Identifier: Apache-2.0
// The first gather, which ranks say with their join (support/control_world.hpp).

#include "support/check.hpp"
#include "support/control_world.hpp"

ddp_case(an_opening_is_answered_as_the_group_forms) {
  ControlWorld world(0, 3);
  for (const char* brought : {"a", "lost"}) {
    const auto at = static_cast<int32_t>(world.count());
    world.add(at, 3, 5'000, bootstrap::Opening{"options", brought});
    world.connect(static_cast<size_t>(at));
  }
  world.run();
  world.kill(1);
  world.add(1, 3, 5'000, bootstrap::Opening{"options", "b"});
  world.add(2, 3, 5'000, bootstrap::Opening{"options", "c"});
  world.connect(2);
  world.connect(3);
  expect_equal(world.hops(), 2, "there and back");
  for (const size_t i : {size_t{0}, size_t{2}, size_t{3}}) {
    expect(world[i].joined, "joined");
    expect(world[i].answers.size() == 1 && world[i].answers[0] == std::vector<std::string>({"a", "b", "c"}),
           "of those who are in the group");
    world.gather(i, "options", "not sent again");
    world.gather(i, "next", std::to_string(i));
  }
  world.run();
  for (const size_t i : {size_t{0}, size_t{2}, size_t{3}})
    expect(world[i].answers.size() == 2 && world[i].answers[1] == std::vector<std::string>({"0", "2", "3"}),
           "the one after it");
}

ddp_case(a_second_contribution_before_the_group_forms_is_refused) {
  ControlWorld world(0, 2);
  world.add(0, 2, 5'000, bootstrap::Opening{"options", "a"});
  world.connect(0);
  world.run();
  world[0].to_server.push_back(
      {bootstrap::FrameType::kGather, std::make_shared<const bootstrap::Body>(bootstrap::messages::write(
                                          bootstrap::messages::Gather{2, 0, 0, bootstrap::UserCall::kNone, "next", "b"}))});
  world.run();
  expect(!world[0].server_open && world[0].lost, "its connection has ended");
}
