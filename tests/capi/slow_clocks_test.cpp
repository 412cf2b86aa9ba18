// SPDX-License-Identifier: Apache-2.0
// Time limits and clocks of a group that are longer than any training, and than a clock can tell, on every transport.
#include "support/check.hpp"
#include "support/group_paths.hpp"
#include "support/public_api.hpp"

ddp_case_on(kThreePaths, a_group_may_have_time_for_ever) {
  for (const int64_t ms : {int64_t{100'000'000}, INT64_MAX}) {
    run_at(path, 2, [&](const std::string& place, const ddp_group_options& inside, int rank) {
      ddp_group_options options = patient_options(rank, 2);
      options.backend = inside.backend;
      options.timeout_ms = options.rendezvous_timeout_ms = options.dead_after_ms = ms;
      options.heartbeat_ms = ms - 1;
      ddp_group* const group = create_group(place, options);
      OK(ddp_group_barrier(group));
      float number = static_cast<float>(rank);
      const ddp_tensor tensor{&number, DDP_F32, DDP_CPU, 0, 1, {1}};
      OK(rank == 0 ? ddp_group_send(group, &tensor, 1, 1, nullptr)
                   : ddp_group_receive(group, &tensor, 0, 1, nullptr, nullptr));
      ddp_request* request = nullptr;
      OK(ddp_group_post_all_reduce(group, &tensor, DDP_SUM, &request, nullptr));
      int32_t done = 0;
      OK(ddp_request_wait(request, ms, &done));
      expect(done == 1 && number == 0, "the sum of two zeros, when it is there");
      ddp_request_destroy(request);
      ddp_group_destroy(group);
    });
  }
}
