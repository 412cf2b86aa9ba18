// SPDX-License-Identifier: Apache-2.0
// A rank waits for a request before it marks its gradients, and the others post it behind the end of their pass: they wait
// for each other, on every transport, and get an error at once.

#include "model/model.hpp"
#include "support/check.hpp"
#include "support/group_paths.hpp"

using group::Request;
using group::RequestPtr;

void a_wait_before_the_marks_that_others_need_is_found(Path path, ddp_progress progress) {
  for (const int size : {2, 3})
    run_at(path, size, [progress](const std::string& place, const ddp_group_options& options, int rank) {
      const auto group = group::Group::create(place.c_str(), options);
      ddp_model_options of_model{.first_bucket_bytes = 1 << 20, .bucket_bytes = 1 << 20, .progress = progress};
      std::vector<float> value(3000), grad(3000, 1);
      model::Model model(group, of_model);
      const Tensor gradient = flat_tensor(grad.data(), DDP_F32, 3000);
      model.add_parameter("w", flat_tensor(value.data(), DDP_F32, 3000), &gradient);
      model.commit();
      RequestPtr request;
      group->barrier(&request);
      expect(request->wait(Request::kForEver), "the first, which opens the channel");
      const auto begin = std::chrono::steady_clock::now();
      expect_error(DDP_ERROR_DIFFERENT_CALLS,
                   [&] {
                     model.begin_backward(DDP_PASS_REDUCE);
                     if (rank == 0) {
                       group->barrier(&request);
                       static_cast<void>(request->wait(Request::kForEver));
                     }
                     model.pass().mark_ready(0);
                     model.end_backward();
                     group->barrier(&request);
                   },
                   {"ddp_group_post_barrier", "ddp_model_end_backward"});
      expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10), "at once");
    });
}

ddp_case_on(kThreePaths, a_wait_before_the_marks_of_the_caller) {
  a_wait_before_the_marks_that_others_need_is_found(path, DDP_PROGRESS_CALLER);
}
ddp_case_on(kThreePaths, a_wait_before_the_marks_of_a_thread) {
  a_wait_before_the_marks_that_others_need_is_found(path, DDP_PROGRESS_THREAD);
}
