// SPDX-License-Identifier: Apache-2.0
// The control plane as the ranks of one host see it: ranks are local indices, an exchange is one of the whole group of which
// only the own host's answers are read. So all hosts must make the same exchanges in the same order.
// Threads: as Control.
// Tested by process/hierarchy_test.cpp.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "control/control.hpp"

namespace ddp::hierarchy {

class HostControl final : public bootstrap::Control {
 public:
  /// `ranks` of this host; `local` is this rank's index in it. `group` outlives this.
  HostControl(bootstrap::Control& group, std::vector<int32_t> ranks, int32_t local)
      : group_(group), ranks_(std::move(ranks)), local_(local) {
    set_link_key(group.link_key());
  }

  [[nodiscard]] int32_t rank() const noexcept override { return local_; }
  [[nodiscard]] int32_t size() const noexcept override { return static_cast<int32_t>(ranks_.size()); }
  [[nodiscard]] const bootstrap::Member& member(int32_t rank) const noexcept override {
    return group_.member(in_group(rank));
  }

  [[nodiscard]] std::vector<std::string> gather(std::string_view what, std::string_view mine,
                                                os::Deadline deadline) override {
    std::vector<std::string> all = group_.gather(what, mine, deadline);
    std::vector<std::string> here;
    for (const int32_t rank : ranks_) here.push_back(std::move(all[static_cast<size_t>(rank)]));
    return here;
  }

  void abort(const Error& cause) noexcept override { group_.abort(cause); }
  [[nodiscard]] std::optional<Error> settle() override { return group_.settle(); }
  void saw_death(int32_t rank) noexcept override { group_.saw_death(in_group(rank)); }
  void leave(bootstrap::Leaving how) noexcept override { group_.leave(how); }
  void on_failure(std::function<void(const Error&)> fn) override { group_.on_failure(std::move(fn)); }
  void set_progress(int64_t pass, int32_t bucket) noexcept override { group_.set_progress(pass, bucket); }
  [[nodiscard]] bootstrap::CallState& calls() noexcept override { return group_.calls(); }
  [[nodiscard]] std::string describe_progress(int32_t rank) const override {
    return group_.describe_progress(in_group(rank));
  }

 private:
  [[nodiscard]] int32_t in_group(int32_t local) const noexcept { return ranks_[static_cast<size_t>(local)]; }

  bootstrap::Control& group_;
  std::vector<int32_t> ranks_;
  int32_t local_;
};

}  // namespace ddp::hierarchy
