// SPDX-License-Identifier: Apache-2.0
// Seam 4: how parameters change. Built-in rules (sgd, adam) and those of the program (custom) behind one interface of few
// functions.
// Threads: one at a time.
// Tested by unit/optim/optimizer_test.cpp against a float64 oracle.
#pragma once

#include <cstdint>
#include <memory>

#include "ddp/optimizer.h"
#include "model/model.hpp"
#include "model/replica_state.hpp"
#include "parts/step/block_update.hpp"

namespace ddp::optim {

class Optimizer : public model::ReplicaState {
 public:
  explicit Optimizer(std::shared_ptr<model::Model> model) : model_(std::move(model)) {}
  /// One update of every used parameter. `stream`: as for a model.
  virtual void step(void* stream) = 0;
  void step() { step(nullptr); }
  virtual void set_rate(double rate) = 0;
  [[nodiscard]] virtual double rate() const noexcept = 0;
  /// This, the loss scale, the steps that were skipped and the norm may wait for a GPU that has counted them.
  [[nodiscard]] virtual int64_t step_count() const = 0;
  virtual void set_parameter_options(int32_t index, double weight_decay, double rate_scale) = 0;

  /// The rules of this folder have the following; what else changes parameters need not.
  virtual void set_loss_scale(const ddp_loss_scale_options&) {
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "ddp_optimizer_set_loss_scale: an optimizer of kind %s scales its gradients itself", kind());
  }
  [[nodiscard]] virtual double loss_scale() const { return 1; }
  /// The loss scale into one element, F32 or F64, of host memory or in the order of a GPU's stream. Throws INVALID_ARGUMENT
  /// or INVALID_STATE.
  virtual void copy_loss_scale(const Tensor& to, void* stream);
  [[nodiscard]] virtual int64_t skipped_count() const { return 0; }
  /// Of the last step that looked at the whole gradient; -1: none did.
  [[nodiscard]] virtual double grad_norm() const { return -1; }
  [[nodiscard]] int64_t steps() const override { return step_count(); }
  [[nodiscard]] int64_t optimizer_steps() const override { return step_count(); }
  /// Itself, as the model knows its optimizers; NULL: it changes parameters in a way of its own.
  [[nodiscard]] virtual parts::BlockUpdate* blocks() noexcept { return nullptr; }
  /// Is a step collective?
  [[nodiscard]] virtual bool steps_together() const { return !is_replicated(); }
  /// Its part in the model's passes, to be attached; NULL: it has none.
  [[nodiscard]] virtual parts::BlockUpdate* in_passes() noexcept { return nullptr; }

  /// It is new: takes what all optimizers of the model have alike from one that there is.
  void join_others();

  [[nodiscard]] model::Model& model() const noexcept { return *model_; }

 private:
  std::shared_ptr<model::Model> model_;
};

}  // namespace ddp::optim
