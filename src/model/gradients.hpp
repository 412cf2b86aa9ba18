// SPDX-License-Identifier: Apache-2.0
// The gradients of a model: operations on all of them between passes, and whether they are valid for a step.
// They may be on any device; on a GPU they are read and written in the order of `stream`, and only norms make the host wait,
// for that one stream. Threads: as Model. Nothing is allocated after the first use of each call. Tested by
// gpu_host/gradients_test.cpp, conformance/pass_test.cpp and capi/clipping_test.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/exact_sum.hpp"
#include "core/parameter_set.hpp"
#include "core/parameters.hpp"
#include "core/plan.hpp"
#include "device/span_lists.hpp"
#include "group/group.hpp"
#include "model/norms.hpp"

namespace ddp::model {

class Model;

class Gradients {
 public:
  /// `table`: the model's.
  Gradients(Model& model, Parameters& table) noexcept : model_(model), table_(table) {}

  /// The program's plan of buckets, before commit. `numbers`: as read_given_buckets(), by index.
  void set_buckets(std::span<const int32_t> numbers);
  /// The gradient lies there from now on. NULL: that of a parameter that was added without one has no memory any more.
  void set(int32_t index, const Tensor* grad);

  void zero(void* stream = nullptr);
  /// Collective if an optimizer is sharded.
  [[nodiscard]] double norm(double p, void* stream = nullptr);
  void scale(double factor, void* stream = nullptr);
  /// Returns the norm before. Collective as norm().
  double clip_norm(double max_norm, double p, void* stream = nullptr);
  void clip_value(double limit, void* stream = nullptr);
  /// The program has reduced all of them itself: they are good for one step.
  void take_reduced();

  /// Throws INVALID_STATE when those of a committed model are not to be stepped with: not reduced while there are other
  /// ranks, accumulated, of a void pass, or, if `used_in` is what Results::final_passes() was then, used before. Nothing is
  /// refused once a pass was captured into a graph, which makes gradients at any time. `function` names the caller in the
  /// text.
  void require_final(const char* function, int64_t used_in) const;
  /// Throws INVALID_STATE if a parameter was added without a gradient and has none now.
  void require_given(const char* function) const;
  /// Throws INVALID_STATE while gradients are sums, which the step divides.
  void require_means(const char* function) const;
  /// Are those used gradients finite, of the parameters that an optimizer has and that are not in `own`? Collective if one
  /// is sharded.
  [[nodiscard]] bool are_finite_beyond(const ParameterSet& own, void* stream);
  /// Throws INVALID_STATE after a pass that has made the optimizer's step, until ddp_optimizer_step; `why`: what the call
  /// would miss.
  void require_no_made_step(const char* function, const char* why) const;

 private:
  void take_back(int32_t index);
  /// One operation on all of them.
  void change(const device::Operation& operation, void* stream);
  /// Those that `which(index)` selects: the own slice of each whose optimizer is sharded (`sliced`), or the others whole.
  template <class Which>
  [[nodiscard]] Norms& norms_of(bool sliced, const Which& which);
  [[nodiscard]] double largest_magnitude(void* stream);
  template <class Which>
  [[nodiscard]] ExactSum sum_of_terms(int32_t p, const Which& which, void* stream);
  /// Is the optimizer of this parameter sharded?
  [[nodiscard]] bool is_divided(int32_t index) const noexcept;

  Model& model_;
  Parameters& table_;
  device::SpanLists spans_;
  Norms norms_;
};

/// What a plan of buckets is made of, by position.
[[nodiscard]] std::vector<PlanItem> plan_items(const Parameters& table, const std::vector<int32_t>& present);

/// The sum over all ranks, on all ranks. Collective.
void join_sums(group::Group& group, ExactSum& sum);

}  // namespace ddp::model
