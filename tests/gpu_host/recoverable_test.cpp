// SPDX-License-Identifier: Apache-2.0
// A model with tensors on a GPU in a group that can recover: refused at its commit, on all ranks, before anything is sent,
// with what to do instead. The group goes on, with models in host memory.
#include <memory>
#include <string>
#include <vector>

#include "model/model.hpp"
#include "support/gpu_world.hpp"
#include "support/group_procs.hpp"

namespace ddp::test {
namespace {

constexpr int64_t kCount = 1'000;

ddp_group_options recoverable() {
  ddp_group_options options = world_options();
  options.recoverable = 1;
  options.device_index = 0;
  return options;
}

ddp_model_options model_options() {
  ddp_model_options options{};
  options.first_bucket_bytes = options.bucket_bytes = 1 << 20;
  return options;
}

void expect_refused(group::Group& group, const Tensor& value, const Tensor* buffer) {
  model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), model_options());
  model.add_parameter("w", value, nullptr);
  if (buffer != nullptr) model.add_buffer("running", *buffer);
  const std::string text = expect_error(DDP_ERROR_NOT_SUPPORTED, [&] { model.commit(); });
  expect_contains(text, "tensors on a GPU");
  expect_contains(text, "recoverable = 1");
  expect_contains(text, "checkpoint");
}

void a_model_on_a_gpu_is_refused_at_its_commit(void**) {
  for (const int size : {1, 2})
    run_group_procs(size, recoverable(), [size](group::Group& group, int rank) {
      const FakeGpus gpus;
      expect(fake_gpu::table().set_device(0) == 0, "a program has its GPU current");
      const GpuArray there(0, kCount * 4);
      std::vector<float> values(kCount, 1), gradient(kCount);
      const Tensor here = flat_tensor(values.data(), DDP_F32, kCount), on_gpu = there.tensor(group, DDP_F32);
      expect_refused(group, on_gpu, nullptr);
      expect_refused(group, here, &on_gpu);
      model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), model_options());
      const Tensor lent = flat_tensor(gradient.data(), DDP_F32, kCount);
      model.add_parameter("w", here, &lent);
      model.commit();
      std::fill(gradient.begin(), gradient.end(), static_cast<float>(rank + 1));
      model.begin_backward(DDP_PASS_REDUCE);
      model.pass().mark_ready(0);
      model.end_backward();
      expect_equal(gradient[kCount - 1], size == 1 ? 1.0F : 1.5F, "the mean");
      group.barrier();
      FakeGpus::expect_correct();
    });
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {ddp_test(a_model_on_a_gpu_is_refused_at_its_commit)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
