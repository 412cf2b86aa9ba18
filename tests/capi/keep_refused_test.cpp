// SPDX-License-Identifier: Apache-2.0
// What ddp_state_keep refuses, in a group of one rank.
#include "ddp/experimental.h"
#include "support/check.hpp"
#include "support/group_procs.hpp"

/// A model of one rank.
struct Alone : NotCopied {
  float value = 1;
  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  ddp_state state{};

  explicit Alone(int32_t recoverable) {
    ddp_group_options options;
    const Folder place;
    const int64_t one = 1;
    ddp_tensor tensor;
    expect(ddp_group_options_init(&options, sizeof options) == DDP_OK, "options");
    options.rank = 0;
    options.world_size = 1;
    options.recoverable = recoverable;
    const bool made = ddp_group_create(("file://" + place.path() + "/meet").c_str(), &options, &group) == DDP_OK &&
                      ddp_model_create(group, nullptr, &model) == DDP_OK &&
                      ddp_tensor_init(&tensor, &value, DDP_F32, 1, &one) == DDP_OK &&
                      ddp_model_add_parameter(model, "w", &tensor, nullptr, nullptr) == DDP_OK &&
                      ddp_model_commit(model, nullptr) == DDP_OK && ddp_state_init(&state, sizeof state) == DDP_OK;
    expect(made, "a model");
    state.model = model;
  }
  ~Alone() {
    ddp_model_destroy(model);
    ddp_group_destroy(group);
  }
  void refuses(ddp_status status, const char* word, int32_t count = 1) const {
    expect_equal(static_cast<int>(ddp_state_keep(&state, count, nullptr)), static_cast<int>(status), word);
    expect_contains(ddp_last_error(), word);
  }
};

ddp_case(what_cannot_be_kept_is_refused) {
  Alone(0).refuses(DDP_ERROR_INVALID_STATE, "recoverable");
  Alone alone(1);
  alone.refuses(DDP_ERROR_INVALID_ARGUMENT, "count", 0);
  alone.state.own_bytes = 65'537;
  alone.state.own = &alone;
  alone.refuses(DDP_ERROR_INVALID_ARGUMENT, "own_bytes");
  alone.state.own_bytes = 1;
  alone.state.own = nullptr;
  alone.refuses(DDP_ERROR_INVALID_ARGUMENT, "own_bytes");
  alone.state.own_bytes = 0;
  const ddp_state twice[] = {alone.state, alone.state};
  expect_equal(static_cast<int>(ddp_state_keep(twice, 2, nullptr)), static_cast<int>(DDP_ERROR_INVALID_ARGUMENT), "twice");
  expect(ddp_model_begin_backward(alone.model, DDP_PASS_REDUCE) == DDP_OK, "a pass");
  alone.refuses(DDP_ERROR_INVALID_STATE, "pass");
  expect(ddp_model_mark_ready(alone.model, 0, nullptr) == DDP_OK && ddp_model_end_backward(alone.model, nullptr) == DDP_OK,
         "its end");
  expect(ddp_state_keep(&alone.state, 1, nullptr) == DDP_OK, "now it is kept");
  int64_t bytes = -1;
  expect(ddp_group_get_kept(alone.group, nullptr, 0, &bytes) == DDP_OK && bytes == 0, "the group has not gone back");
}
