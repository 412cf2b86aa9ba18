// SPDX-License-Identifier: Apache-2.0
/** @file
 * Averages of the parameters, and a scope in which they stand in the parameters' place.
 */
#ifndef DDP_CPP_EMA_HPP
#define DDP_CPP_EMA_HPP

#include "ddp/cpp/model.hpp"

namespace ddp {
inline namespace cpp17_v1 {

/** Exponential averages of all parameters of a model, one for each decay. */
class Ema {
 public:
  Ema(Model& model, Span<const double> decays) : group_(model.group()) {
    ddp_ema* made = nullptr;
    model.checked(ddp_ema_create(model.get(), decays.data(), static_cast<std::int32_t>(decays.size()), &made));
    handle_ = Handle<ddp_ema, ddp_ema_destroy>(made);
  }
  /** `ddp::Ema ema(model, {0.99, 0.999});` */
  Ema(Model& model, std::initializer_list<double> decays) : Ema(model, Span<const double>(decays.begin(), decays.size())) {}

  ddp_ema* get() const noexcept { return handle_.get(); }
  /** Take the parameters in; after each step. */
  void update(void* stream = nullptr) { check(ddp_ema_update(get(), stream), group_); }
  /** Exchange the parameters with an average; again to swap back. */
  void swap(int which, void* stream = nullptr) { check(ddp_ema_swap(get(), which, stream), group_); }

 private:
  Handle<ddp_ema, ddp_ema_destroy> handle_;
  ddp_group* group_;
};

/** In its scope an average replaces the parameters: `ddp::Averaged evaluate(ema, 0);`. */
class Averaged {
 public:
  explicit Averaged(Ema& ema, int which = 0, void* stream = nullptr) : ema_(ema), which_(which), stream_(stream) {
    ema.swap(which, stream);
  }
  ~Averaged() { (void)ddp_ema_swap(ema_.get(), which_, stream_); }
  Averaged(const Averaged&) = delete;
  Averaged& operator=(const Averaged&) = delete;

 private:
  Ema& ema_;
  int which_;
  void* stream_;
};

}  // namespace cpp17_v1
}  // namespace ddp

#endif
