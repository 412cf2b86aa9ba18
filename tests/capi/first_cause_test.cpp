// SPDX-License-Identifier: Apache-2.0
// In a broken group every call repeats the first cause: none reports that a pass is not open, or a model not committed,
// because the call before has failed for that cause. Every function that takes a handle is called, in each state of a model.

#include "support/check.hpp"
#include "support/handle_calls.hpp"
#include "support/public_api.hpp"
#include "support/ranks.hpp"

enum class State { kBuilding, kReady, kOpen, kStepped };
enum class Break { kAbort, kLeave };

const char* reason_of(Break how) { return how == Break::kAbort ? "no more milk" : "left the group"; }

struct Trainee : NotCopied {
  Handles h;
  float value[4] = {1, 2, 3, 4}, grad[4] = {};

  Trainee(const std::string& place, int rank, int size = 2) { h.group = create_group(place, patient_options(rank, size)); }
  ~Trainee() {
    ddp_outer_destroy(h.outer);
    ddp_ema_destroy(h.ema);
    ddp_optimizer_destroy(h.optimizer);
    ddp_model_destroy(h.model);
    ddp_group_destroy(h.group);
  }
  void build() {
    const double decay = 0.5;
    OK(ddp_model_create(h.group, nullptr, &h.model));
    OK(ddp_model_add_array(h.model, "w", value, grad, 4, nullptr));
    OK(ddp_optimizer_create_sgd(h.model, nullptr, nullptr, &h.optimizer));
    OK(ddp_ema_create(h.model, &decay, 1, &h.ema));
  }
  void reach(State state) {
    build();
    if (state == State::kBuilding) return;
    OK(ddp_model_commit(h.model, nullptr));
    if (state == State::kReady) return;
    OK(ddp_model_begin_backward(h.model, DDP_PASS_REDUCE));
    if (state == State::kOpen) return;
    OK(ddp_model_mark_ready(h.model, 0, nullptr));
    OK(ddp_model_end_backward(h.model, nullptr));
    OK(ddp_optimizer_step(h.optimizer, nullptr));
  }
};

/// What needs no group, is about a group that is broken, or takes away what the other calls are about.
bool is_other(const char* name) {
  for (const char* const part :
       {"_destroy", "ddp_bucket_", "ddp_hook_", "ddp_outer_", "ddp_group_recover", "ddp_group_get_rank",
        "ddp_group_get_size", "ddp_group_get_backend", "next_bucket", "finish_bucket", "ddp_request_", "ddp_model_remove_"})
    if (std::strstr(name, part) != nullptr) return true;
  return false;
}

/// The name of a call that was refused and gave another reason; "" if there was none.
std::string call_all(const Handles& h, const char* reason) {
  for (const HandleCall& call : all_handle_calls) {
    if (is_other(call.name) || !call.is_refused(h)) continue;  // refused: INVALID_STATE, or the value that means it
    if (std::strstr(ddp_last_error(), reason) == nullptr && std::strstr(ddp_last_error(), call.name) != nullptr)
      return std::string(call.name) + ": " + ddp_last_error();
  }
  return "";
}

void wait_until_broken(const ddp_group* group) {
  while (ddp_group_status(group) == DDP_OK) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Rank 1, once rank 0 is where it shall be.
void end_group(const Trainee& trainee, Break how, const std::atomic<bool>& there) {
  while (!there) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (how == Break::kAbort) OK(ddp_group_abort(trainee.h.group, "no more milk"));
}

ddp_case(every_call_repeats_it_in_every_state) {
  for (const Break how : {Break::kAbort, Break::kLeave})
    for (const State state : {State::kBuilding, State::kReady, State::kOpen, State::kStepped}) {
      if (how == Break::kLeave && state == State::kOpen) continue;  // to leave an open pass is no good order
      std::atomic<bool> there{false};
      run_ranks(2, [&](int rank) {
        Trainee trainee("local://first-cause", rank);
        trainee.reach(state);
        if (rank == 1) return end_group(trainee, how, there);
        there = true;
        wait_until_broken(trainee.h.group);
        for (int round = 0; round < 2; ++round) {
          const std::string odd = call_all(trainee.h, reason_of(how));
          expect(odd.empty(), "in state " + std::to_string(static_cast<int>(state)) + ": " + odd);
        }
      });
    }
}

/// The loop of a program that looks at the last call alone.
ddp_case(a_pass_that_could_not_begin_ends_with_the_cause) {
  std::atomic<bool> there{false};
  run_ranks(2, [&](int rank) {
    Trainee trainee("local://begin-failed", rank);
    trainee.reach(State::kStepped);
    if (rank == 1) return end_group(trainee, Break::kAbort, there);
    there = true;
    wait_until_broken(trainee.h.group);
    ddp_model* const model = trainee.h.model;
    const auto expect_cause = [](ddp_status status, const char* call) {
      expect_equal(static_cast<int>(status), static_cast<int>(DDP_ERROR_ABORTED), call);
      expect_contains(ddp_last_error(), "no more milk");
    };
    expect_cause(ddp_model_begin_backward(model, DDP_PASS_REDUCE), "begin");
    expect_cause(ddp_model_mark_ready(model, 0, nullptr), "mark");
    expect_cause(ddp_model_mark_range_ready(model, 0, 0, 2, nullptr), "mark of a range");
    expect_cause(ddp_model_end_backward(model, nullptr), "end");
    expect_cause(ddp_model_abandon_backward(model, "a bad batch", nullptr), "abandon");
    expect_cause(ddp_model_skip_backward(model, nullptr), "skip");
  });
}

/// What is wrong with the call itself stays wrong.
ddp_case(a_wrong_argument_is_no_cause) {
  Trainee trainee("local://alone", 0, 1);
  trainee.reach(State::kReady);
  OK(ddp_group_abort(trainee.h.group, "no more milk"));
  expect_equal(static_cast<int>(ddp_model_mark_ready(trainee.h.model, 7, nullptr)),
               static_cast<int>(DDP_ERROR_INVALID_ARGUMENT), "index");
}
