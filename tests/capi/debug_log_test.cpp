// SPDX-License-Identifier: Apache-2.0
// What DDP_LOG=debug adds, for a report of a fault: the plan, how each pair of ranks exchanges data, and the threads.

#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/public_api.hpp"

void take(void* user_data, ddp_log_level level, const char* text) {
  auto& lines = *static_cast<std::string*>(user_data);
  lines += (level == DDP_LOG_DEBUG ? "debug: " : "other: ") + std::string(text) + "\n";
}

ddp_case(plan_ways_and_threads_are_told) {
  const Folder folder;
  for (const ddp_backend backend : {DDP_BACKEND_AUTO, DDP_BACKEND_GLOO}) {
    Procs procs(2, [&](int rank, Reporter&) {
      setenv("DDP_LGO", "debug", 1);
      std::string lines;
      OK(ddp_set_log(DDP_LOG_DEBUG, take, &lines));
      ddp_group_options options = patient_options(rank, 2);
      options.backend = backend;
      ddp_group* const group = create_group("file://" + folder.path() + "/meet" + std::to_string(backend), options);
      ddp_model* model = nullptr;
      float values[2][300'000] = {}, grads[2][300'000] = {};
      OK(ddp_model_create(group, nullptr, &model));
      OK(ddp_model_add_array(model, "first", values[0], grads[0], 300'000, nullptr));
      OK(ddp_model_add_array(model, "second", values[1], grads[1], 300'000, nullptr));
      OK(ddp_model_commit(model, nullptr));
      ddp_model_destroy(model);
      ddp_group_destroy(group);
      OK(ddp_set_log(DDP_LOG_WARNING, nullptr, nullptr));
      return lines;
    });
    int rank = 0;
    for (const ProcResult& result : procs.wait()) {
      expect(result.exit_code == 0, result.describe());
      const char* const way = backend == DDP_BACKEND_GLOO ? ") over Gloo\n" : ") over shared memory\n";
      expect_contains(result.text, way);
      expect_contains(result.text, "debug: the threads of libddp in this process: ddp-");
      expect(rank > 0 || result.text.find("debug: the model: 2 parameters in ") != std::string::npos, result.text);
      expect(rank > 0 || result.text.find("debug: bucket 0: ") != std::string::npos, result.text);
      expect(rank > 0 || result.text.find("DDP_LGO is not read by libddp; did you mean DDP_LOG?") != std::string::npos,
             result.text);
      ++rank;
    }
  }
}
