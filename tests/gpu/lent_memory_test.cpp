// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that is declared as host memory is refused wherever host memory is taken, before any read.
// Page-locked memory is the host's.

#include "gpu/support/calls.hpp"
#include "gpu/support/place.hpp"

using namespace ddp::test::card;

namespace {

constexpr const char* kText = "was given as host memory, but it is memory of GPU 0: ";

/// A group, memory of its GPU, and arrays of the host as large.
struct Lender {
  GroupHandle group = alone(DDP_BACKEND_NCCL, 0);
  Memory hidden{kGpu, 4096};
  std::vector<double> host = std::vector<double>(512);
  ModelHandle model = [this] {
    ddp_model* made = nullptr;
    OK(ddp_model_create(group.get(), nullptr, &made));
    return ModelHandle(made);
  }();

  /// A wrong declaration: on the host.
  [[nodiscard]] ddp_tensor lie(ddp_dtype dtype = DDP_F32, int64_t count = 16) const {
    return flat(hidden.data(), dtype, count, kCpu);
  }
  [[nodiscard]] ddp_tensor truth(ddp_dtype dtype = DDP_F32, int64_t count = 16) {
    return flat(host.data(), dtype, count, kCpu);
  }
};

void expect_refused(ddp_status status, const std::string& name, const char* advice) {
  must_fail(status, DDP_ERROR_INVALID_ARGUMENT, (name + " " + kText).c_str(), name.c_str());
  must_fail(status, DDP_ERROR_INVALID_ARGUMENT, advice, name.c_str());
}
constexpr const char* kDescribe = "device = DDP_CUDA";
constexpr const char* kCopy = "copy it there first";

ddp_case(a_model_refuses_it) {
  Lender at;
  auto* const pointer = static_cast<float*>(at.hidden.data());
  float* const own = reinterpret_cast<float*>(at.host.data());
  const ddp_tensor lie = at.lie(), truth = at.truth();
  ddp_model* const model = at.model.get();
  const char* const advice = "call ddp_model_add_parameter with a ddp_tensor that has device = DDP_CUDA";
  expect_refused(ddp_model_add_array(model, "w", pointer, nullptr, 16, nullptr), "parameter \"w\"", advice);
  expect_refused(ddp_model_add_array(model, "w", own, pointer, 16, nullptr), "the gradient of parameter \"w\"", advice);
  expect_refused(ddp_model_add_parameter(model, "w", &lie, nullptr, nullptr), "parameter \"w\"", kDescribe);
  expect_refused(ddp_model_add_parameter(model, "w", &truth, &lie, nullptr), "the gradient of parameter \"w\"", kDescribe);
  expect_refused(ddp_model_add_buffer(model, "b", &lie, nullptr), "buffer \"b\"", kDescribe);
  OK(ddp_model_add_array(model, "w", own, own + 16, 16, nullptr));
  expect_refused(ddp_model_set_grad(model, 0, &lie), "the gradient of parameter \"w\"", "its parameter lies in host memory");
  OK(ddp_model_commit(model, nullptr));
  expect_refused(ddp_model_set_grad(model, 0, &lie), "the gradient of parameter \"w\"", "its parameter lies in host memory");
}

ddp_case(collectives_refuse_it) {
  Lender at;
  const ddp_tensor lie = at.lie(), truth = at.truth();
  ddp_group* const group = at.group.get();
  for (int again = 0; again < 2; ++again) {
    expect_refused(ddp_group_all_reduce(group, &lie, DDP_SUM, nullptr), "ddp_group_all_reduce: tensor", kDescribe);
    expect_refused(ddp_group_all_gather(group, &lie, &truth, nullptr), "ddp_group_all_gather: input", kDescribe);
    expect_refused(ddp_group_all_gather(group, &truth, &lie, nullptr), "ddp_group_all_gather: output", kDescribe);
    expect_refused(ddp_group_reduce_scatter(group, &lie, &truth, DDP_SUM, nullptr), "ddp_group_reduce_scatter: input",
                   kDescribe);
    expect_refused(ddp_group_reduce_scatter(group, &truth, &lie, DDP_SUM, nullptr), "ddp_group_reduce_scatter: output",
                   kDescribe);
    expect_refused(ddp_group_broadcast(group, &lie, 0, nullptr), "ddp_group_broadcast: tensor", kDescribe);
    OK(ddp_group_all_reduce(group, &truth, DDP_SUM, nullptr));
  }
  auto* const numbers = static_cast<double*>(at.hidden.data());
  expect_refused(ddp_group_reduce_metrics(group, numbers, 3, DDP_SUM), "ddp_group_reduce_metrics: values", kCopy);
  ddp_tensor list = at.truth(DDP_I64, 4), rows = at.truth(DDP_F32, 8), hidden_rows = at.lie(DDP_F32, 8);
  const ddp_tensor hidden_list = at.lie(DDP_I64, 4);
  for (ddp_tensor* const each : {&rows, &hidden_rows}) each->ndim = 2, each->shape[0] = 4, each->shape[1] = 2;
  int64_t count = 0;
  expect_refused(ddp_group_all_reduce_rows(group, &hidden_list, &rows, DDP_SUM, &count, nullptr),
                 "ddp_group_all_reduce_rows: indices", kCopy);
  expect_refused(ddp_group_all_reduce_rows(group, &list, &hidden_rows, DDP_SUM, &count, nullptr),
                 "ddp_group_all_reduce_rows: rows", kCopy);
  expect_refused(ddp_group_get_rows(group, &hidden_list, &rows), "ddp_group_get_rows: indices", kCopy);
  expect_refused(ddp_group_get_rows(group, &list, &hidden_rows), "ddp_group_get_rows: rows", kCopy);
  OK(ddp_group_status(group));
}

ddp_case(what_else_takes_host_memory_refuses_it) {
  Lender at;
  auto sampler = defaults<ddp_sampler>();
  sampler.dataset_size = 16;
  expect_refused(ddp_sampler_fill(&sampler, 0, 0, 4, static_cast<int64_t*>(at.hidden.data())),
                 "ddp_sampler_fill: out_indices", kCopy);
  auto options = defaults<ddp_batch_norm_options>();
  ddp_tensor x = at.lie(DDP_F32, 8);
  x.ndim = 2, x.shape[0] = 4, x.shape[1] = 2;
  ddp_tensor y = x;
  y.data = at.host.data();
  const ddp_tensor saved = at.truth(DDP_F32, 2);
  int64_t count = 0;
  expect_refused(ddp_batch_norm_forward(at.group.get(), &options, &x, nullptr, nullptr, nullptr, nullptr, &y, &saved, &saved,
                                        &count, nullptr),
                 "ddp_batch_norm_forward: x", kDescribe);
}

/// In a hook a bucket's group takes host memory alone.
ddp_case(collectives_in_a_hook_refuse_it) {
  Lender at;
  OK(ddp_model_add_array(at.model.get(), "w", reinterpret_cast<float*>(at.host.data()), nullptr, 16, nullptr));
  OK(ddp_model_set_pulled_hook(at.model.get()));
  OK(ddp_model_commit(at.model.get(), nullptr));
  OK(ddp_model_begin_backward(at.model.get(), DDP_PASS_REDUCE));
  OK(ddp_model_mark_ready(at.model.get(), 0, nullptr));
  ddp_bucket* bucket = nullptr;
  OK(ddp_model_next_bucket(at.model.get(), 1, &bucket));
  const ddp_tensor lie = at.lie();
  ddp_group* group = nullptr;
  OK(ddp_bucket_get_group(bucket, &group));
  expect_refused(ddp_group_all_reduce(group, &lie, DDP_SUM, nullptr), "ddp_group_all_reduce: tensor", kCopy);
  expect_refused(ddp_group_broadcast(group, &lie, 0, nullptr), "ddp_group_broadcast: tensor", kCopy);
  OK(ddp_model_finish_bucket(at.model.get(), 0, nullptr));
  OK(ddp_model_end_backward(at.model.get(), nullptr));
}

ddp_case(page_locked_memory_is_the_hosts) {
  const Lender at;
  void *host = nullptr, *device = nullptr;
  GPU_CALL(host_alloc(&host, &device, 64));
  const ddp_tensor tensor = flat(host, DDP_F32, 16, kCpu);
  OK(ddp_group_all_reduce(at.group.get(), &tensor, DDP_SUM, nullptr));
  GPU_CALL(host_free(host));
}

gpu_cases(need_devices(1));

}  // namespace
