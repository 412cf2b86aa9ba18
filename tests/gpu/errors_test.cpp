// SPDX-License-Identifier: Apache-2.0
// A wrong CUDA tensor, or one that a call does not support, gives an error of one sentence from the call that gets it, and
// nothing else breaks.
#include "gpu/support/trainer.hpp"

using namespace ddp::test::card;

namespace {

ddp_case(memory_of_the_host_is_no_cuda_tensor) {
  const GroupHandle group = alone();
  ddp_model* made = nullptr;
  OK(ddp_model_create(group.get(), nullptr, &made));
  const ModelHandle model(made);
  float on_host[16] = {};
  const ddp_tensor value = flat(on_host, DDP_F32, 16, kGpu);
  FAILS(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_parameter(made, "weight", &value, nullptr, nullptr), "weight");
}

ddp_case(a_gpu_that_does_not_exist_is_named) {
  const GroupHandle group = alone();
  ddp_model* made = nullptr;
  OK(ddp_model_create(group.get(), nullptr, &made));
  const ModelHandle model(made);
  const Memory memory(kGpu, 64);
  ddp_tensor value = flat(memory.data(), DDP_F32, 16, kGpu);
  value.device_index = 99;
  const ddp_status status = ddp_model_add_parameter(made, "weight", &value, nullptr, nullptr);
  expect(status == DDP_ERROR_INVALID_ARGUMENT || status == DDP_ERROR_NOT_SUPPORTED, "GPU 99 is refused");
  expect_contains(ddp_last_error(), "99");
}

ddp_case(a_gradient_lies_where_its_parameter_does) {
  const GroupHandle group = alone();
  ddp_model* made = nullptr;
  OK(ddp_model_create(group.get(), nullptr, &made));
  const ModelHandle model(made);
  const Memory on_gpu(kGpu, 64), on_cpu(kCpu, 64);
  const ddp_tensor value = flat(on_gpu.data(), DDP_F32, 16, kGpu), grad = flat(on_cpu.data(), DDP_F32, 16, kCpu);
  FAILS(DDP_ERROR_INVALID_ARGUMENT, ddp_model_add_parameter(made, "weight", &value, &grad, nullptr), "weight");
}

ddp_case(sparse_rows_of_a_gpu_are_refused) {
  const GroupHandle group = alone();
  const Memory indices(kGpu, 64), rows(kGpu, 64);
  const ddp_tensor i = flat(indices.data(), DDP_I64, 8, kGpu), r = flat(rows.data(), DDP_F32, 8, kGpu);
  int64_t count = 0;
  FAILS(DDP_ERROR_NOT_SUPPORTED, ddp_group_all_reduce_rows(group.get(), &i, &r, DDP_SUM, &count, nullptr), "");
}

int32_t never(void*, ddp_bucket*) { return 1; }

ddp_case(hooks_other_than_those_of_16_bits_are_refused) {
  for (const ddp_hook_fn hook : {static_cast<ddp_hook_fn>(never), static_cast<ddp_hook_fn>(ddp_hook_powersgd)}) {
    const GroupHandle group = alone();
    ddp_model* made = nullptr;
    OK(ddp_model_create(group.get(), nullptr, &made));
    const ModelHandle model(made);
    const Memory memory(kGpu, 64);
    const ddp_tensor value = flat(memory.data(), DDP_F32, 16, kGpu);
    OK(ddp_model_add_parameter(made, "weight", &value, nullptr, nullptr));
    ddp_status status = ddp_model_set_hook(made, hook, nullptr, nullptr);
    if (status == DDP_OK) status = ddp_model_commit(made, nullptr);
    expect_equal(static_cast<int>(status), static_cast<int>(DDP_ERROR_NOT_SUPPORTED), "the status");
  }
}

ddp_case(a_collective_of_one_rank_takes_cuda_tensors) {
  const GroupHandle group = alone();
  const Stream stream(kGpu);
  const Memory memory(kGpu, 64), copy(kGpu, 64);
  const std::string bytes = encoded(DDP_F32, 16, [](int64_t i) { return static_cast<double>(i); });
  memory.write(bytes);
  const ddp_tensor tensor = flat(memory.data(), DDP_F32, 16, kGpu), other = flat(copy.data(), DDP_F32, 16, kGpu);
  for (const ddp_reduce op : {DDP_SUM, DDP_AVERAGE, DDP_MIN, DDP_MAX})
    OK(ddp_group_all_reduce(group.get(), &tensor, op, stream.get()));
  OK(ddp_group_broadcast(group.get(), &tensor, 0, stream.get()));
  OK(ddp_group_all_gather(group.get(), &tensor, &other, stream.get()));
  stream.wait();
  expect_same_bytes(memory.read() + copy.read(), bytes + bytes, "the tensor and its copy");
}

ddp_case(the_program_may_use_another_device_in_between) {
  std::string why;
  if (count_devices(why) < 2) return;  // nothing to go to
  const GroupHandle group = alone();
  Trainer t(group.get(), Plan{});
  GPU_CALL(set_device(1));
  OK(ddp_model_zero_grad(t.model.get(), t.stream.get()));
  int32_t now = -1;
  GPU_CALL(get_device(&now));
  expect_equal(now, 1, "the device that was current before the call");
  t.pass(0);
}

/// The pass fails with a sentence, at the mark or at the end, and a model made afterwards works.
void expect_refused_stream(void* stream) {
  const GroupHandle group = alone();
  {
    Trainer t(group.get(), Plan{});
    OK(ddp_model_begin_backward(t.model.get(), DDP_PASS_REDUCE));
    ddp_status status = DDP_OK;
    for (int32_t p = t.count(); status == DDP_OK && p-- > 0;) status = ddp_model_mark_ready(t.model.get(), p, stream);
    if (status == DDP_OK) status = ddp_model_end_backward(t.model.get(), stream);
    expect(status != DDP_OK, "such a stream is refused");
    expect(std::string(ddp_last_error()).size() > 20, "with a sentence");
    std::printf("  %s: %s\n", ddp_status_name(status), ddp_last_error());
  }
  forgive_violations();
  const GroupHandle fresh = alone();
  Trainer t(fresh.get(), Plan{});
  t.pass(0);
}

ddp_case(a_stream_of_another_gpu_is_refused) {
  std::string why;
  if (count_devices(why) < 2) return;
  const Stream other(Place{1});
  expect_refused_stream(other.get());
}

/// On a real GPU such an address may end the process, which no library can prevent.
ddp_case(an_address_that_is_no_stream_is_refused) {
  char nothing[64] = {};
  if (is_fake()) expect_refused_stream(nothing);
}

gpu_cases(need_devices(1));

}  // namespace
