// SPDX-License-Identifier: Apache-2.0
// With DDP_PROGRESS_CALLER every function of the program that libddp calls runs on a thread that is inside a call of the
// program: hooks and rules, whatever the transport, the optimizer's options and the other models of the group are.
#include <pthread.h>

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/no_gloo.hpp"
#include "support/public_api.hpp"

constexpr int64_t kCount = 40'000;
constexpr int kParameters = 4;

enum class Way { kSharedMemory, kGloo, kTwoHosts };

std::vector<Way> ways() {
  if (no_gloo()) return {Way::kSharedMemory};
  return {Way::kSharedMemory, Way::kGloo, Way::kTwoHosts};
}

/// Where functions of the program ran.
struct Calls {
  pthread_t own = pthread_self();
  std::atomic<int> here{0}, elsewhere{0};
  void note() { (pthread_equal(pthread_self(), own) != 0 ? here : elsewhere)++; }
};

int32_t update(void* calls, const ddp_update_slice* slice) {
  static_cast<Calls*>(calls)->note();
  for (int64_t i = 0; i < slice->count; ++i)
    static_cast<float*>(slice->value)[i] -= static_cast<const float*>(slice->grad)[i];
  return 0;
}

int32_t hook(void* calls, ddp_bucket* bucket) {
  static_cast<Calls*>(calls)->note();
  ddp_tensor tensor;
  ddp_group* group = nullptr;
  if (ddp_bucket_get_contents(bucket, &tensor) != DDP_OK || ddp_bucket_get_group(bucket, &group) != DDP_OK) return 1;
  return ddp_group_all_reduce(group, &tensor, DDP_AVERAGE, nullptr);
}

struct Trained {
  Trained(ddp_group* group, ddp_progress progress) {
    auto options = defaults<ddp_model_options>();
    options.progress = progress;
    options.bucket_bytes = options.first_bucket_bytes = kCount * 4;
    OK(ddp_model_create(group, &options, &model));
    for (int i = 0; i < kParameters; ++i)
      OK(ddp_model_add_array(model, ("p" + std::to_string(i)).c_str(), values[i].data(), grads[i].data(), kCount, nullptr));
  }
  void mark() {
    OK(ddp_model_begin_backward(model, DDP_PASS_REDUCE));
    for (int i = kParameters - 1; i >= 0; --i) {
      for (float& each : grads[i]) each = 1;
      OK(ddp_model_mark_ready(model, i, nullptr));
    }
  }
  std::vector<float> values[kParameters] = {std::vector<float>(kCount), std::vector<float>(kCount),
                                            std::vector<float>(kCount), std::vector<float>(kCount)};
  std::vector<float> grads[kParameters] = {std::vector<float>(kCount), std::vector<float>(kCount),
                                           std::vector<float>(kCount), std::vector<float>(kCount)};
  ddp_model* model = nullptr;
};

ddp_group* join(const Folder& folder, Way way, int rank) {
  if (way == Way::kTwoHosts) setenv("DDP_TEST_HOST", std::to_string(rank % 2).c_str(), 1);
  ddp_group_options options = patient_options(rank, 2);
  if (way == Way::kGloo) options.backend = DDP_BACKEND_GLOO;
  return create_group("file://" + folder.path() + "/meet", options);
}

void expect_done(Procs& procs) { expect_success(procs, 60'000); }

ddp_case(rules_run_on_the_threads_of_the_program) {
  for (const Way way : ways())
    for (int options = 0; options < 4; ++options) {
      const Folder folder;
      Procs procs(2, [&](int rank, Reporter&) {
        ddp_group* const group = join(folder, way, rank);
        Calls calls;
        Trained trained(group, DDP_PROGRESS_CALLER), beside(group, DDP_PROGRESS_THREAD);
        OK(ddp_model_commit(trained.model, nullptr));
        OK(ddp_model_commit(beside.model, nullptr));
        ddp_optimizer* rule = nullptr;
        auto shared = defaults<ddp_optimizer_options>();
        shared.shard = options & 1;
        shared.in_backward = options >> 1;
        OK(ddp_optimizer_create_custom(trained.model, nullptr, &shared, nullptr, update, &calls, nullptr, &rule));
        for (int step = 0; step < 5; ++step) {
          beside.mark();
          trained.mark();
          OK(ddp_model_end_backward(beside.model, nullptr));
          OK(ddp_model_end_backward(trained.model, nullptr));
          OK(ddp_optimizer_step(rule, nullptr));
        }
        expect(calls.here > 0 && calls.elsewhere == 0,
               std::to_string(calls.here) + " calls here, " + std::to_string(calls.elsewhere) + " on other threads");
        expect(trained.values[0][0] == -5 && trained.values[kParameters - 1][kCount - 1] == -5, "five steps");
        ddp_group_destroy(group);
      });
      expect_done(procs);
    }
}

ddp_case(hooks_run_on_the_threads_of_the_program) {
  for (const Way way : ways()) {
    const Folder folder;
    Procs procs(2, [&](int rank, Reporter&) {
      ddp_group* const group = join(folder, way, rank);
      Calls calls;
      Trained trained(group, DDP_PROGRESS_CALLER);
      OK(ddp_model_set_hook(trained.model, hook, &calls, nullptr));
      OK(ddp_model_commit(trained.model, nullptr));
      for (int step = 0; step < 5; ++step) {
        trained.mark();
        OK(ddp_model_end_backward(trained.model, nullptr));
        expect(trained.grads[0][0] == 1 && trained.grads[kParameters - 1][kCount - 1] == 1, "the mean");
      }
      expect(calls.here > 0 && calls.elsewhere == 0, std::to_string(calls.elsewhere) + " on other threads");
      ddp_group_destroy(group);
    });
    expect_done(procs);
  }
}
