// SPDX-License-Identifier: Apache-2.0
#include "control/solo.hpp"

#include <atomic>

#include "control/identity.hpp"
#include "control/limits.hpp"
#include "control/texts.hpp"

namespace ddp::bootstrap {
namespace {

class SoloControl final : public Control {
 public:
  SoloControl() : me_(this_member(0)) {
    me_.address = "127.0.0.1";
    me_.id = 0;
  }

  int32_t rank() const noexcept override { return 0; }
  int32_t size() const noexcept override { return 1; }
  const Member& member(int32_t) const noexcept override { return me_; }

  std::vector<std::string> gather(std::string_view what, std::string_view mine, os::Deadline) override {
    if (left_) throw texts::already_left();
    if (mine.size() > limits::kBlobBytes) throw texts::gather_too_large(what, mine.size());
    return {std::string(mine)};
  }
  void abort(const Error&) noexcept override {}  // there is no other rank to inform
  void leave(Leaving) noexcept override { left_ = true; }
  void on_failure(std::function<void(const Error&)>) override {}
  void set_progress(int64_t pass, int32_t bucket) noexcept override {
    pass_.store(pass);
    bucket_.store(bucket);
  }
  Sign last_sign(int32_t) const override {
    return {0, {pass_.load(), bucket_.load(), own_calls().last(), own_calls().inside() > 0}, false};
  }
  std::string describe_progress(int32_t) const override { return texts::progress(0, {}); }

 private:
  Member me_;
  std::atomic<bool> left_{false};
  std::atomic<int64_t> pass_{-1};
  std::atomic<int32_t> bucket_{-1};
};

}  // namespace

std::unique_ptr<Control> make_solo_control() { return std::make_unique<SoloControl>(); }

}  // namespace ddp::bootstrap
