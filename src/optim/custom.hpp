// SPDX-License-Identifier: Apache-2.0
// A rule of the program: a function that is called with slices of the parameters and whose state libddp keeps, as it keeps
// that of the built-in rules. On the host it computes in F32 or F64: what is 16 bits wide, and gradients that are clipped or
// scaled, come in copies of a few thousand elements. After the first failure of a step the function is not called again in
// that step.
// Tested by unit/optim/optimizer_test.cpp, conformance/custom_test.cpp and capi/optimizer_test.c.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/custom.h"
#include "model/replica_state.hpp"
#include "optim/optimizer.hpp"

namespace ddp::optim {

/// The caller's data, released exactly once.
class UserData {
 public:
  UserData(void* data, ddp_release_fn release) noexcept : data_(data), release_(release) {}
  UserData(UserData&& other) noexcept : data_(other.data_), release_(std::exchange(other.release_, nullptr)) {}
  UserData& operator=(UserData&&) = delete;
  ~UserData();
  [[nodiscard]] void* get() const noexcept { return data_; }

 private:
  void* data_;
  ddp_release_fn release_;
};

[[nodiscard]] ddp_custom_options default_custom_options() noexcept;

/// The arguments of ddp_optimizer_create_custom, checked.
struct CustomRule {
  /// Throws INVALID_ARGUMENT that names the field.
  CustomRule(const ddp_custom_options& options, const char* state_names, const char* where);
  double rate = 0;
  double weight_decay = 0;
  bool whole_tensors = false;
  std::vector<std::string> states;
};

class Custom final : public Optimizer {
 public:
  Custom(std::shared_ptr<model::Model> model, ddp_update_fn fn, const CustomRule& rule, const ddp_optimizer_options& shared,
         UserData user_data);

  [[nodiscard]] const char* kind() const noexcept override { return "custom"; }
  [[nodiscard]] std::vector<model::StateTensor> state_tensors() override { return named_tensors(rule_.states); }
  [[nodiscard]] std::map<std::string, std::string> state_fields() const override;
  /// State arrays of other names: MISMATCH.
  void load_fields(const std::map<std::string, std::string>& fields) override;
  [[nodiscard]] bool may_fail() const noexcept override { return true; }
  [[nodiscard]] std::optional<Error> take_failure() noexcept override { return std::exchange(failure_, std::nullopt); }

 protected:
  [[nodiscard]] OptimizerState* store() noexcept override { return &states_; }
  [[nodiscard]] device::Updates& updates() noexcept override { return noted_; }
  [[nodiscard]] bool takes_whole_tensors() const noexcept override { return rule_.whole_tensors; }
  void prepare_rule() override;
  void update(const Block& block, const device::GradShape& shape) override;

 private:
  /// Blocks of parameters on a GPU: the function is called for each when they are launched.
  class Noted final : public device::Updates {
   public:
    explicit Noted(Custom& owner) : owner_(owner) {}
    void reserve(const Parameters& table) override { blocks_.reserve(table.parameters().size()); }
    void clear() noexcept override { blocks_.clear(); }
    [[nodiscard]] bool empty() const noexcept override { return blocks_.empty(); }
    void launch(const device::Device& device, const device::GradShape& shape, const device::Order& order) override;
    void add(const Block& block) { blocks_.push_back(block); }

   private:
    Custom& owner_;
    std::vector<Block> blocks_;
  };

  void require_plain() const;
  [[nodiscard]] bool is_copied(const Parameter& parameter) const noexcept;
  /// In copies of the compute type, piece by piece.
  void update_copied(const Block& block, const cpu::GradShape& shape);
  /// On the F32 copy of a block in host memory.
  void update_master(const Block& block, const device::GradShape& shape);
  void call(const Block& block, void* stream);

  ddp_update_fn fn_;
  CustomRule rule_;
  UserData user_data_;
  OptimizerState states_;
  Noted noted_;
  int64_t room_ = 0;              // elements of each copy
  os::LargeArray values_;         // F32
  os::LargeArray grads_;          // F32 or F64
  std::optional<Error> failure_;  // the first of this step
};

}  // namespace ddp::optim
