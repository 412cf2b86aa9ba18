// SPDX-License-Identifier: Apache-2.0
/** @file
 * Batch normalisation over the samples of all ranks.
 */
#ifndef DDP_CPP_BATCH_NORM_HPP
#define DDP_CPP_BATCH_NORM_HPP

#include "ddp/cpp/group.hpp"

namespace ddp {
inline namespace cpp17_v1 {

/** Options of a batch normalisation, with their defaults. */
using BatchNormOptions = Options<ddp_batch_norm_options, ddp_batch_norm_options_init>;

/** One layer: forward() keeps the statistics that backward() needs. Between the beginning and the end of a model's pass the
 * group is a second one. The group outlives the layer. */
class BatchNorm {
 public:
  /** What a layer reads and writes in addition to its input. A missing tensor is nullptr. */
  struct Tensors {
    const Tensor* weight = nullptr;       /**< [C]; without: 1 */
    const Tensor* bias = nullptr;         /**< [C]; without: 0 */
    const Tensor* running_mean = nullptr; /**< [C]; without: not kept */
    const Tensor* running_var = nullptr;  /**< [C]; given if running_mean is */
  };

  BatchNorm(Group& group, std::int64_t channels, const BatchNormOptions& options = {})
      : group_(group.get()), options_(options), mean_(static_cast<std::size_t>(channels)), invstd_(mean_.size()) {}

  /** Training, momentum and the like; between calls. */
  BatchNormOptions& options() noexcept { return options_; }

  void forward(const Input& x, const Tensors& with, const Tensor& y, void* stream = nullptr) {
    const Tensor mean(mean_), invstd(invstd_);
    check(ddp_batch_norm_forward(group_, &options_, x.get(), with.weight, with.bias, with.running_mean, with.running_var, &y,
                                 &mean, &invstd, &count_, stream),
          group_);
  }
  /** `dx`, `dweight`, `dbias` may be nullptr: not wanted. */
  void backward(const Input& dy, const Input& x, const Tensor* weight, const Tensor* dx, const Tensor* dweight = nullptr,
                const Tensor* dbias = nullptr, void* stream = nullptr) {
    const Tensor mean(mean_), invstd(invstd_);
    check(ddp_batch_norm_backward(group_, &options_, dy.get(), x.get(), weight, &mean, &invstd, count_, dx, dweight, dbias,
                                  stream),
          group_);
  }

 private:
  ddp_group* group_;
  BatchNormOptions options_;
  std::vector<double> mean_, invstd_;
  std::int64_t count_ = 0; /* values per channel over all ranks */
};

}  // namespace cpp17_v1
}  // namespace ddp

#endif
