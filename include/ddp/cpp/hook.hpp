// SPDX-License-Identifier: Apache-2.0
/** @file
 * Hooks as functions: they replace the plain reduction of a bucket.
 */
#ifndef DDP_CPP_HOOK_HPP
#define DDP_CPP_HOOK_HPP

#include "ddp/cpp/model.hpp"

namespace ddp {
inline namespace cpp17_v1 {

/** Options of PowerSGD, with their defaults. */
using PowerSgdOptions = Options<ddp_powersgd_options, ddp_powersgd_options_init>;

/** A bucket inside a hook; usable until the hook returns. */
class Bucket {
 public:
  explicit Bucket(ddp_bucket* bucket) : bucket_(bucket) { check(ddp_bucket_get_group(bucket, &group_)); }
  ddp_bucket* get() const noexcept { return bucket_; }
  int index() const noexcept { return ddp_bucket_get_index(bucket_); }
  bool is_last() const noexcept { return ddp_bucket_is_last(bucket_) == 1; }
  /** All gradients of the bucket as one flat array. */
  Tensor contents() const {
    ddp_tensor found = ddp_tensor();
    check(ddp_bucket_get_contents(bucket_, &found));
    return Tensor(found);
  }
  int parameter_count() const noexcept { return ddp_bucket_get_parameter_count(bucket_); }
  /** The gradient at a position of the bucket; `out_index` becomes its parameter's index in the model. */
  Tensor parameter(int position, std::int32_t* out_index = nullptr) const {
    ddp_tensor found = ddp_tensor();
    check(ddp_bucket_get_parameter(bucket_, position, out_index, &found));
    return Tensor(found);
  }
  bool is_used(int position) const noexcept { return ddp_bucket_is_used(bucket_, position) == 1; }

  int rank() const noexcept { return ddp_group_get_rank(group_); }
  int size() const noexcept { return ddp_group_get_size(group_); }
  void all_reduce(const Tensor& tensor, ddp_reduce op) { check(ddp_group_all_reduce(group_, &tensor, op, nullptr)); }
  void all_gather(const Input& input, const Tensor& output) {
    check(ddp_group_all_gather(group_, input.get(), &output, nullptr));
  }
  void reduce_scatter(const Input& input, const Tensor& output, ddp_reduce op) {
    check(ddp_group_reduce_scatter(group_, input.get(), &output, op, nullptr));
  }
  void broadcast(const Tensor& tensor, int root) { check(ddp_group_broadcast(group_, &tensor, root, nullptr)); }

 private:
  ddp_bucket* bucket_;
  ddp_group* group_ = nullptr; /* the library's, as a hook may use it */
};

/** Reduces one bucket. An exception fails the pass on all ranks, with its text. Runs on a thread of the library unless the
 * model has DDP_PROGRESS_CALLER. */
using Hook = std::function<void(Bucket&)>;

/** Give the model a hook, before commit. As ddp_model_set_hook. */
inline void set_hook(Model& model, Hook hook) {
  using Box = detail::Boxed<Hook>;
  const ddp_hook_fn call = [](void* user_data, ddp_bucket* bucket) -> std::int32_t {
    Bucket seen(bucket);
    Box::in(user_data)(seen);
    return 0;
  };
  model.checked(ddp_model_set_hook(model.get(), call, Box::make(std::move(hook)), Box::release));
}

/** Compress gradients with PowerSGD, from the next commit on. As ddp_hook_powersgd. */
inline void set_powersgd(Model& model, const PowerSgdOptions& options = {}) {
  const ddp_release_fn release = [](void* user_data) { delete static_cast<PowerSgdOptions*>(user_data); };
  model.checked(ddp_model_set_hook(model.get(), ddp_hook_powersgd, new PowerSgdOptions(options), release));
}

}  // namespace cpp17_v1
}  // namespace ddp

#endif
