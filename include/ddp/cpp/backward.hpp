// SPDX-License-Identifier: Apache-2.0
/** @file
 * A backward pass as an object: an exception in the scope ends it on all ranks.
 */
#ifndef DDP_CPP_BACKWARD_HPP
#define DDP_CPP_BACKWARD_HPP

#include "ddp/cpp/model.hpp"

namespace ddp {
inline namespace cpp17_v1 {

/**
 * An open pass of a model:
 *
 *     ddp::Backward pass(model);
 *     ...
 *     pass.mark_ready(3);   // any thread
 *     pass.end();
 *
 * A scope that is left without end(), by an exception or a return, abandons the pass: end() throws INVALID_STATE on the
 * other ranks, with that cause in the text, and no rank waits. The model outlives the pass.
 */
class Backward {
 public:
  explicit Backward(Model& model, ddp_pass mode = DDP_PASS_REDUCE, void* stream = nullptr)
      : model_(&model), stream_(stream) {
    model.checked(ddp_model_begin_backward(model.get(), mode));
  }
  ~Backward() {
    if (model_ == nullptr) return;
    const char* reason =
        reason_.empty() ? "its scope ended before the pass did, by an exception or a return" : reason_.c_str();
    (void)ddp_model_abandon_backward(model_->get(), reason, stream_);
  }
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  /** How much this rank's gradients count; before the first mark. Holds for later passes too. */
  void set_weight(double weight) { checked(ddp_model_set_weight(model_or_throw().get(), weight)); }
  /** This rank has no batch after this pass; before the first mark. */
  void set_last() { checked(ddp_model_set_last_pass(model_or_throw().get())); }

  /** The gradient is complete: libddp may start to average it. Any thread. */
  void mark_ready(int index, void* stream = nullptr) {
    checked(ddp_model_mark_ready(model_or_throw().get(), index, stream));
  }
  /** A part of the gradient is complete. Any thread. */
  void mark_range_ready(int index, std::int64_t first, std::int64_t count, void* stream = nullptr) {
    checked(ddp_model_mark_range_ready(model_or_throw().get(), index, first, count, stream));
  }
  /** The gradient will not come in this pass on this rank. Any thread. */
  void mark_unused(int index) { checked(ddp_model_mark_unused(model_or_throw().get(), index)); }

  /** Wait for all ranks; afterwards gradients are reduced. The pass is over whatever the result. Collective. */
  void end() {
    Model& model = model_or_throw();
    model_ = nullptr;
    model.checked(ddp_model_end_backward(model.get(), stream_));
  }
  /** Give the pass up, with a sentence for the other ranks; here the call returns when they know. Collective. */
  void abandon(const std::string& reason) {
    Model& model = model_or_throw();
    model_ = nullptr;
    model.checked(ddp_model_abandon_backward(model.get(), reason.c_str(), stream_));
  }
  /** The reason that the other ranks get if the scope ends before the pass. */
  void set_reason(std::string reason) { reason_ = std::move(reason); }

 private:
  Model& model_or_throw() const {
    if (model_ == nullptr) throw Error(DDP_ERROR_INVALID_STATE, -1, "ddp::Backward: this pass has ended: make a new one");
    return *model_;
  }
  void checked(ddp_status status) const { model_or_throw().checked(status); }

  Model* model_; /* nullptr: the pass has ended */
  void* stream_;
  std::string reason_;
};

/** Take part in one pass without a batch. As ddp_model_skip_backward. */
inline void skip_backward(Model& model, void* stream = nullptr) {
  model.checked(ddp_model_skip_backward(model.get(), stream));
}

}  // namespace cpp17_v1
}  // namespace ddp

#endif
