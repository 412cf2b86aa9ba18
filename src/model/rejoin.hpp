// SPDX-License-Identifier: Apache-2.0
// What a model does when its group recovers: it releases the objects built on the old ranks, and is built again on the
// surviving ranks, with the state of one of them. Threads: as Model. Tested by capi/recovery_test.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "group/recoverable.hpp"

namespace ddp::model {

class Model;

class Rejoin final : public group::Follower {
 public:
  /// NULL if the group cannot recover. From now on, while the result lives, a recovery builds the model again. In the same
  /// order on all ranks.
  [[nodiscard]] static std::shared_ptr<Rejoin> follow(Model& model);
  explicit Rejoin(Model& model) noexcept : model_(model) {}

  void stop() noexcept override;
  void leave_group() noexcept override;
  [[nodiscard]] int32_t rejoin_group() override;
  [[nodiscard]] int64_t steps() override;
  [[nodiscard]] bool is_whole() const noexcept override;
  [[nodiscard]] std::optional<Error> take_problem() noexcept override;
  [[nodiscard]] bool is_of(const void* object) const noexcept override { return object == &model_; }
  [[nodiscard]] std::string version() override;
  [[nodiscard]] std::vector<group::KeptTensor> kept_tensors() override;
  [[nodiscard]] std::string kept_fields() override;
  void begin_back() noexcept override;
  void end_back(const std::string& fields) override;
  /// The program's commit has built the model: ranks that wait for it in a recovery continue. Collective then.
  void note_commit();
  /// True once after a recovery that did what a commit which failed was to do.
  [[nodiscard]] bool take_commit() noexcept;

 private:
  Model& model_;
  bool was_committed_ = false;
  bool has_committed_ = false;  // in the place of the program
};

}  // namespace ddp::model
