// SPDX-License-Identifier: Apache-2.0
#include "extra/outer/movement_hook.hpp"

#include <algorithm>
#include <string>

#include "extra/outer/quantise.hpp"
#include "os/memory.hpp"
#include "parts/hooks/hook_bucket.hpp"

namespace ddp::outer {
namespace {

/// What rounding lost of a bucket's movements. A pass that is void breaks the outer optimizer, so it is kept once.
class Lost final : public parts::HookState {
 public:
  explicit Lost(int64_t count)
      : data_(static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(float), "movements that rounding lost"),
        count_(count) {}
  void end_pass(bool) noexcept override {}
  void forget() noexcept override { std::fill_n(data(), count_, 0.0F); }
  [[nodiscard]] float* data() noexcept { return reinterpret_cast<float*>(data_.data()); }

 private:
  os::LargeArray data_;
  int64_t count_;
};

void add_lost(parts::HookBucket& bucket, float* movement, int64_t count) {
  if (bucket.state == nullptr) return;
  const float* const lost = static_cast<Lost&>(*bucket.state).data();
  for (int64_t i = 0; i < count; ++i) movement[i] = movement[i] + lost[i];
}

void exchange(parts::HookBucket& bucket, const ddp_outer_options& options, const Exactness& exactness) {
  const Tensor whole = bucket.contents();
  if (bucket.size() == 1) return;
  if (whole.dtype != DDP_F32) return bucket.all_reduce(whole, bucket.reduce());
  auto* const movement = reinterpret_cast<float*>(whole.data);
  if (options.error_feedback != 0 && bucket.state == nullptr) bucket.state = std::make_shared<Lost>(whole.count);
  add_lost(bucket, movement, whole.count);
  if (exactness.is_exact) {
    if (bucket.state != nullptr) bucket.state->forget();
    return bucket.all_reduce(whole, bucket.reduce());
  }
  const int64_t bytes = packed_bytes(whole.count, options.bits);
  std::byte* const own = bucket.scratch(bytes * (bucket.size() + 1));
  std::byte* const all = own + bytes;
  quantise(movement, whole.count, options.bits, own,
           bucket.state == nullptr ? nullptr : static_cast<Lost&>(*bucket.state).data());
  bucket.all_gather(flat_tensor(own, DDP_U8, bytes), flat_tensor(all, DDP_U8, bytes * bucket.size()));
  add_quantised(all, bytes, bucket.size(), whole.count, options.bits, static_cast<float>(bucket.size()), movement);
}

}  // namespace

parts::Hook movement_hook(const ddp_outer_options& options, std::shared_ptr<const Exactness> exactness) {
  if (options.bits == 32) return {};
  if (options.bits == 16) return parts::Hook::sent_as(DDP_BF16);
  parts::Hook hook;
  hook.kind = parts::Hook::Kind::kCallback;
  hook.name =
      "movements with " + std::to_string(options.bits) + " bits" + (options.error_feedback != 0 ? ", error feedback" : "");
  hook.body = [options, exactness = std::move(exactness)](parts::HookBucket& bucket) {
    exchange(bucket, options, *exactness);
  };
  return hook;
}

}  // namespace ddp::outer
