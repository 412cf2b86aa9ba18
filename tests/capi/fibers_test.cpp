// SPDX-License-Identifier: Apache-2.0
// A thread with several stacks (fibers, tasks of Julia, greenlets): a function of the program gives way to another stack,
// which makes calls of its own, and the functions end in another order than they began.
#include <ucontext.h>

#include "support/check.hpp"
#include "support/public_api.hpp"

/// A stack that makes an optimizer's step, and gives way inside the rule.
class Fiber : NotCopied {
 public:
  Fiber() {
    auto options = defaults<ddp_group_options>();
    options.rank = 0;
    options.world_size = 1;
    OK(ddp_group_create("local://fiber", &options, &group));
    OK(ddp_model_create(group, nullptr, &model_));
    OK(ddp_model_add_array(model_, "weights", value_.data(), grad_.data(), 4, nullptr));
    OK(ddp_optimizer_create_custom(model_, nullptr, nullptr, nullptr, rule, this, nullptr, &optimizer_));
    OK(ddp_model_commit(model_, nullptr));
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack_.data();
    own_.uc_stack.ss_size = stack_.size();
    own_.uc_link = &other_;
  }
  ~Fiber() {
    ddp_optimizer_destroy(optimizer_);
    ddp_model_destroy(model_);
    ddp_group_destroy(group);
  }

  void start() {
    begins = this;
    makecontext(&own_, run, 0);
    go_on();
  }
  void go_on() { swapcontext(&other_, &own_); }

  ddp_group* group = nullptr;
  ddp_status asked_inside = DDP_OK;
  bool is_done = false;

 private:
  static void run() {
    Fiber& self = *begins;
    OK(ddp_model_begin_backward(self.model_, DDP_PASS_REDUCE));
    OK(ddp_model_mark_ready(self.model_, 0, nullptr));
    OK(ddp_model_end_backward(self.model_, nullptr));
    OK(ddp_optimizer_step(self.optimizer_, nullptr));
    self.is_done = true;
  }
  static int32_t rule(void* user_data, const ddp_update_slice*) {
    Fiber& self = *static_cast<Fiber*>(user_data);
    swapcontext(&self.own_, &self.other_);
    self.asked_inside = ddp_group_barrier(self.group);
    return 0;
  }

  static inline Fiber* begins = nullptr;
  std::array<float, 4> value_{}, grad_{};
  ddp_model* model_ = nullptr;
  ddp_optimizer* optimizer_ = nullptr;
  ucontext_t own_{}, other_{};
  std::vector<char> stack_ = std::vector<char>(512 * 1024);
};

ddp_case(functions_of_two_stacks_end_in_any_order) {
  Fiber first, second;
  first.start();
  second.start();
  expect(ddp_group_barrier(second.group) == DDP_ERROR_INVALID_STATE, "this thread is in its rule");
  first.go_on();
  expect(first.is_done && first.asked_inside == DDP_ERROR_INVALID_STATE, "the first, which ends first, was in its rule");
  second.go_on();
  expect(second.is_done && second.asked_inside == DDP_ERROR_INVALID_STATE, "the second was still in its rule");
  OK(ddp_group_barrier(first.group));
  OK(ddp_group_barrier(second.group));
}
