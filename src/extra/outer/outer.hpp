// SPDX-License-Identifier: Apache-2.0
// The outer optimizer of a model whose ranks make independent steps: DiLoCo (Douillard et al., 2023), with fragments that
// are exchanged at different steps, also during local steps (Streaming DiLoCo, Douillard et al., 2025).
//
// Exchanges go over a group of their own, made of the model's ranks at the first step, so the program's passes and
// collectives are not in their way. Each fragment is a model there; begin and end of its pass come after the same steps on
// all ranks. After a recovery of the model's group both are made anew. Global values, momentum and counters are equal on all
// ranks and are kept as such with the replicas: a recovery and a rank that joins get them from a survivor.
// Memory: 12 bytes a parameter: global value, momentum, movement. Threads: one at a time.
// Tested by conformance/outer_test.cpp, capi/outer_test.c and
// capi/outer_recovery_test.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "extra/outer/fragment.hpp"
#include "model/model.hpp"
#include "model/replica_state.hpp"

namespace ddp::outer {

// Which parameters are exchanged together, and when. Pure functions; tested by unit/extra/schedule_test.cpp.
/// The fragment of each parameter, from 0 on and without gaps: consecutive parameters, with about as many elements in each
/// fragment. There are fewer than `fragments` if parameters are few or large.
[[nodiscard]] std::vector<int32_t> divide(const std::vector<int64_t>& counts, int32_t fragments);

/// Is fragment `index` of `fragments` due after step `step` (from 1 on)? Each once in `every` steps, evenly spread.
[[nodiscard]] constexpr bool is_due(int64_t step, int32_t index, int32_t fragments, int64_t every) noexcept {
  const int64_t offset = index * every / fragments;
  return step >= 1 && step % every == offset;
}

[[nodiscard]] ddp_outer_options default_options() noexcept;

class Outer final : public model::ReplicaState {
 public:
  /// Throws as ddp_outer_create.
  Outer(std::shared_ptr<model::Model> model, const ddp_outer_options& options);
  ~Outer() override;

  /// Collective.
  void step();
  void sync();
  void fill(ddp_outer_stats& stats) const;

  [[nodiscard]] model::Model& model() const noexcept { return *model_; }
  [[nodiscard]] const char* kind() const noexcept override { return "outer"; }
  /// "<parameter>.global" and "<parameter>.momentum". Throws INVALID_STATE while an exchange is under way.
  [[nodiscard]] std::vector<model::StateTensor> state_tensors() override;
  [[nodiscard]] std::map<std::string, std::string> state_fields() const override;
  void load_fields(const std::map<std::string, std::string>& fields) override;
  void follow_loaded_values(const std::vector<bool>& loaded) override;
  [[nodiscard]] int64_t steps() const override { return exchanges_; }

 private:
  struct Flight {
    size_t fragment;
    int64_t begun;  // after which step
  };
  void require_usable(const char* function) const;
  void connect();
  void leave() noexcept;
  template <class Body>
  void change(const char* function, Body&& body);
  void begin(size_t fragment);
  /// The oldest exchange that is under way.
  void land(double keep);
  void tell_others(const Fragment& fragment);
  [[nodiscard]] int64_t generation() const;

  std::shared_ptr<model::Model> model_;
  const ddp_outer_options options_;
  std::vector<Fragment> fragments_;
  std::shared_ptr<Exactness> exactness_ = std::make_shared<Exactness>();
  std::shared_ptr<group::Group> group_;  // of the exchanges; NULL before the first step
  int64_t generation_ = 0;               // of the model's group for which it was made
  std::deque<Flight> flights_;
  int64_t steps_ = 0;
  int64_t exchanges_ = 0;
  int64_t wait_ns_ = 0;
  bool is_torn_ = false;  // an exchange failed in this generation
};

}  // namespace ddp::outer
