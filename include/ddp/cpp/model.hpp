// SPDX-License-Identifier: Apache-2.0
/** @file
 * Models: parameters and buffers that a program lends, and their gradients.
 */
#ifndef DDP_CPP_MODEL_HPP
#define DDP_CPP_MODEL_HPP

#include "ddp/cpp/group.hpp"

namespace ddp {
inline namespace cpp17_v1 {

/** Options of a model, with their defaults. */
using ModelOptions = Options<ddp_model_options, ddp_model_options_init>;

/** Parameters and buffers lent to libddp, and their gradients. The memory that is lent outlives the model. Its group and it
 * end in any order. */
class Model {
 public:
  explicit Model(const Group& group) : Model(group.get(), nullptr) {}
  Model(const Group& group, const ddp_model_options& options) : Model(group.get(), &options) {}

  ddp_model* get() const noexcept { return handle_.get(); }
  /** The group's C handle; calls on it fail after the group was destroyed. */
  ddp_group* group() const noexcept { return group_; }
  /** Throws what a call on this model answered, with this process's rank. */
  void checked(ddp_status status) const { check(status, group_); }

  /** Lend a parameter, in the order of the forward computation; libddp owns its gradient. Returns its index. */
  int add_parameter(const std::string& name, const Tensor& value) { return add(name, value, nullptr); }
  /** ... with memory of the program for the gradient. */
  int add_parameter(const std::string& name, const Tensor& value, const Tensor& grad) { return add(name, value, &grad); }
  /** ... whose gradient comes later, by set_grad() in each pass, before its mark. */
  int add_parameter_without_grad(const std::string& name, const Tensor& value) {
    std::int32_t index = -1;
    checked(ddp_model_add_parameter_without_grad(get(), name.c_str(), &value, &index));
    return index;
  }
  /** Lend a tensor that is not trained. Returns its index among the buffers. */
  int add_buffer(const std::string& name, const Tensor& value) {
    std::int32_t index = -1;
    checked(ddp_model_add_buffer(get(), name.c_str(), &value, &index));
    return index;
  }
  /** Agree with all ranks on the model; rank 0's values go to all. Collective. */
  void commit(void* stream = nullptr) { checked(ddp_model_commit(get(), stream)); }
  /** Back to building, with what the model has learnt: add, remove, commit() again. Collective. */
  void reopen(void* stream = nullptr) { checked(ddp_model_reopen(get(), stream)); }
  /** While the model is building; its index is not used again. */
  void remove_parameter(int index) { checked(ddp_model_remove_parameter(get(), index)); }
  void remove_buffer(int index) { checked(ddp_model_remove_buffer(get(), index)); }
  int parameter_count() const noexcept { return ddp_model_get_parameter_count(get()); }

  /** The gradient of a parameter, where it lives. */
  Tensor grad(int index) const {
    ddp_tensor found = ddp_tensor();
    checked(ddp_model_get_grad(get(), index, &found));
    return Tensor(found);
  }
  /** Its elements: `model.grad<float>(0)`. Throws INVALID_ARGUMENT if it has others, or is on a GPU. */
  template <class T>
  Span<T> grad(int index) const {
    return grad(index).template span<T>();
  }
  /** The value of a parameter, where it lives. */
  Tensor value(int index) const {
    ddp_tensor found = ddp_tensor();
    checked(ddp_model_get_value(get(), index, &found));
    return Tensor(found);
  }
  /** The buckets, in order: numbers of parameters, -1 between two buckets. Before commit(), after the last parameter. */
  void set_buckets(Span<const std::int32_t> numbers) {
    checked(ddp_model_set_buckets(get(), numbers.data(), static_cast<std::int32_t>(numbers.size())));
  }
  /** This pass's memory of a gradient that moves. */
  void set_grad(int index, const Tensor& grad) { checked(ddp_model_set_grad(get(), index, &grad)); }
  /** The gradient of a parameter that was added without one has no memory any more. */
  void take_grad_back(int index) { checked(ddp_model_set_grad(get(), index, nullptr)); }
  /** Did any rank contribute to this parameter in the last pass? */
  bool was_used(int index) const noexcept { return ddp_model_was_used(get(), index) == 1; }

  void zero_grad(void* stream = nullptr) { checked(ddp_model_zero_grad(get(), stream)); }
  /** The program has reduced all gradients over the ranks itself, and not in a pass: they are good for one step of each
   * optimizer. The same bits on all ranks; call it on all of them, before each such step. */
  void mark_reduced() { checked(ddp_model_mark_reduced(get())); }
  /** Norm of all gradients as one vector, in F64; p is 1, 2 or infinity. */
  double grad_norm(double p = 2, void* stream = nullptr) {
    double norm = 0;
    checked(ddp_model_get_grad_norm(get(), p, &norm, stream));
    return norm;
  }
  void scale_grad(double factor, void* stream = nullptr) { checked(ddp_model_scale_grad(get(), factor, stream)); }
  /** Returns the norm before. */
  double clip_grad_norm(double max_norm, double p = 2, void* stream = nullptr) {
    double norm = 0;
    checked(ddp_model_clip_grad_norm(get(), max_norm, p, &norm, stream));
    return norm;
  }
  void clip_grad_value(double limit, void* stream = nullptr) { checked(ddp_model_clip_grad_value(get(), limit, stream)); }

  /** Copy all buffers from one rank to the others. Collective. */
  void sync_buffers(int root = 0, void* stream = nullptr) { checked(ddp_model_sync_buffers(get(), root, stream)); }
  /** Until parameter `p` has its value of the last step (late_values); without a number: all of them. */
  void wait_value(int p, void* stream = nullptr) { checked(ddp_model_wait_value(get(), p, stream)); }
  void wait_values() { checked(ddp_model_wait_values(get())); }
  bool value_ready(int p) const noexcept { return ddp_model_value_ready(get(), p) == 1; }
  /** Throws MISMATCH unless all ranks hold the same bits. Collective. */
  void check_replicas(void* stream = nullptr) { checked(ddp_model_check_replicas(get(), stream)); }
  std::int64_t hash() const {
    std::int64_t found = 0;
    checked(ddp_model_get_hash(get(), &found));
    return found;
  }
  ddp_model_stats stats() const {
    auto found = sized<ddp_model_stats>();
    checked(ddp_model_get_stats(get(), &found));
    return found;
  }
  /** Who took part in the last pass that reduced. */
  ddp_pass_report pass_report() const {
    auto found = sized<ddp_pass_report>();
    checked(ddp_model_get_pass_report(get(), &found));
    return found;
  }
  /** The ranks that did not contribute to it, ascending. */
  std::vector<std::int32_t> absent() const {
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(pass_report().absent_count));
    std::int32_t count = 0;
    checked(ddp_model_get_absent(get(), ranks.data(), static_cast<std::int32_t>(ranks.size()), &count));
    return ranks;
  }
  /** The plan of buckets, for people. */
  std::string plan() const {
    std::int64_t needed = 0;
    checked(ddp_model_describe_plan(get(), nullptr, 0, &needed));
    std::string text(static_cast<std::size_t>(needed), '\0');
    checked(ddp_model_describe_plan(get(), text.data(), needed, &needed));
    text.resize(text.find('\0'));
    return text;
  }

 private:
  Model(ddp_group* group, const ddp_model_options* options) : group_(group) {
    ddp_model* made = nullptr;
    checked(ddp_model_create(group, options, &made));
    handle_ = Handle<ddp_model, ddp_model_destroy>(made);
  }
  int add(const std::string& name, const Tensor& value, const Tensor* grad) {
    std::int32_t index = -1;
    checked(ddp_model_add_parameter(get(), name.c_str(), &value, grad, &index));
    return index;
  }

  ddp_group* group_;
  Handle<ddp_model, ddp_model_destroy> handle_;
};

/** This rank is out of data: answer the others' passes until all have joined. As ddp_model_join. */
inline void join(Model& model, void* stream = nullptr) { model.checked(ddp_model_join(model.get(), stream)); }

/** Put the mean over the ranks in the place of the parameters (local SGD). As ddp_model_average_parameters. */
inline void average_parameters(Model& model, void* stream = nullptr) {
  model.checked(ddp_model_average_parameters(model.get(), stream));
}

}  // namespace cpp17_v1
}  // namespace ddp

#endif
