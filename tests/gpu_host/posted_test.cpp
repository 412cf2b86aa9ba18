// SPDX-License-Identifier: Apache-2.0
// Posted collectives of tensors on GPUs: made at once, and refused while a pass is open, because NCCL has one order.
#include "gpu_host/small_model.hpp"
#include "support/check.hpp"

ddp_ranks_case(run_on_gpus, a_collective_on_a_gpu_is_refused_while_a_pass_is_open, 2) {
  SmallGpuModel small(group, rank);
  GpuArray data(rank, kCount * 4);
  data.poke(std::vector<float>(kCount, static_cast<float>(rank + 1)));
  group::RequestPtr request;
  group.barrier(&request);
  expect(request->wait(group::Request::kForEver), "the first, which opens the channel");
  small.model.begin_backward(DDP_PASS_REDUCE);
  expect_error(DDP_ERROR_INVALID_STATE,
               [&] { group.all_reduce(data.tensor(group, DDP_F32), DDP_SUM, small.stream.get(), &request); },
               {"ddp_group_post_all_reduce: a backward pass is open"});
  float host = 1;
  group.all_reduce(flat_tensor(&host, DDP_F32, 1), DDP_SUM, nullptr, &request);
  expect(request->wait(group::Request::kForEver), "one in host memory is not");
  expect(host == 2, "its sum");
  write_on(small.stream.get(), small.fresh, small.grad.data());
  small.model.pass().mark_ready(0, small.stream.get());
  small.model.end_backward(small.stream.get());
  group.all_reduce(data.tensor(group, DDP_F32), DDP_SUM, small.stream.get(), &request);
  expect(request->ended(), "it is made at once");
  expect(fake_gpu::wait_idle(5000), "the GPU ends it");
  expect(data.peek<float>() == std::vector<float>(kCount, 3), "the sum");
}
