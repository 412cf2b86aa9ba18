// SPDX-License-Identifier: Apache-2.0
#include "extra/outer/fragment.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "device/cpu/arrays.hpp"
#include "device/cpu/update_kernels.hpp"
#include "extra/outer/quantise.hpp"
#include "os/memory.hpp"
#include "parts/hooks/hook_bucket.hpp"
#include "parts/model_pass.hpp"

namespace ddp::outer {
namespace {

/// What rounding lost of a bucket's movements. A pass that is void breaks the outer optimizer, so it is kept once.
struct Lost {
  explicit Lost(int64_t elements)
      : memory(static_cast<size_t>(std::max<int64_t>(elements, 1)) * sizeof(float), "movements that rounding lost"),
        count(elements) {}
  [[nodiscard]] float* data() noexcept { return reinterpret_cast<float*>(memory.data()); }
  void clear() noexcept { std::fill_n(data(), count, 0.0F); }

  os::LargeArray memory;
  int64_t count;
  int64_t loads = 0;  // of checkpoints, before it
};

/// Made at the first call, empty after a load.
Lost& lost_of(parts::HookBucket& bucket, int64_t count) {
  if (bucket.state == nullptr) bucket.state = std::make_shared<Lost>(count);
  auto& lost = *static_cast<Lost*>(bucket.state.get());
  if (std::exchange(lost.loads, bucket.loads()) != bucket.loads()) lost.clear();
  return lost;
}

void exchange(parts::HookBucket& bucket, const ddp_outer_options& options, const Exactness& exactness) {
  const Tensor whole = bucket.contents();
  if (bucket.size() == 1) return;
  if (whole.dtype != DDP_F32) return bucket.all_reduce(whole, bucket.reduce());
  auto* const movement = reinterpret_cast<float*>(whole.data);
  Lost* const lost = options.error_feedback != 0 ? &lost_of(bucket, whole.count) : nullptr;
  for (int64_t i = 0; lost != nullptr && i < whole.count; ++i) movement[i] = movement[i] + lost->data()[i];
  if (exactness.is_exact) {
    if (lost != nullptr) lost->clear();
    return bucket.all_reduce(whole, bucket.reduce());
  }
  const int64_t bytes = packed_bytes(whole.count, options.bits);
  std::byte* const own = bucket.scratch(bytes * (bucket.size() + 1));
  std::byte* const all = own + bytes;
  quantise(movement, whole.count, options.bits, own, lost == nullptr ? nullptr : lost->data());
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

namespace {

constexpr int64_t kAlignment = 64;

/// Calls fn with a null pointer of the type of the global values: float or double.
template <class Fn>
void with_type(ddp_dtype dtype, Fn&& fn) {
  if (dtype == DDP_F64)
    fn(static_cast<double*>(nullptr));
  else
    fn(static_cast<float*>(nullptr));
}

/// m = momentum * m + d; global -= rate * (d + momentum * m), or rate * m.
template <class Real>
void step(const ddp_outer_options& options, const Real* movement, Real* momentum, Real* global, int64_t count) noexcept {
  const Real rate = static_cast<Real>(options.rate), decay = static_cast<Real>(options.momentum);
  const bool nesterov = options.nesterov != 0;
  for (int64_t i = 0; i < count; ++i) {
    const Real moved = decay * momentum[i] + movement[i];
    momentum[i] = moved;
    const Real direction = nesterov ? movement[i] + decay * moved : moved;
    global[i] = global[i] - rate * direction;
  }
}

}  // namespace

Fragment::Fragment(const Parameters& table, std::vector<int32_t> parameters)
    : table_(table), parameters_(std::move(parameters)) {
  int64_t bytes = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    offsets_.push_back(bytes);
    const Tensor& value = parameter(i).value;
    bytes += (value.count * dtype_size(cpu::moment_dtype(value.dtype)) + kAlignment - 1) / kAlignment * kAlignment;
  }
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  global_ = os::LargeArray(size, "global values");
  momentum_ = os::LargeArray(size, "outer momentum");
  begin_anew();
}

Tensor Fragment::global(size_t index) const noexcept {
  Tensor tensor = parameter(index).value;
  tensor.dtype = cpu::moment_dtype(tensor.dtype);
  tensor.data = global_.data() + offsets_[index];
  return tensor;
}

Tensor Fragment::momentum(size_t index) const noexcept {
  Tensor tensor = global(index);
  tensor.data = momentum_.data() + offsets_[index];
  return tensor;
}

void Fragment::begin_anew() noexcept {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& value = parameter(i).value;
    const Tensor start = global(i);
    if (value.dtype == start.dtype) {
      if (value.count > 0) std::memcpy(start.data, value.data, static_cast<size_t>(value.bytes()));
    } else {
      cpu::convert(value.dtype, value.data, start.dtype, start.data, value.count);
    }
    if (start.count > 0) std::memset(momentum(i).data, 0, static_cast<size_t>(start.bytes()));
  }
}

void Fragment::connect(std::shared_ptr<group::Group> group, const ddp_outer_options& options,
                       const std::shared_ptr<const Exactness>& exactness) {
  ddp_model_options exchange{};
  exchange.first_bucket_bytes = int64_t{1} << 20;
  exchange.bucket_bytes = int64_t{25} << 20;  // links may be long, and nothing is computed between marks
  exchange.reduce = DDP_AVERAGE;
  exchange.progress = options.overlap > 0 ? DDP_PROGRESS_THREAD : DDP_PROGRESS_AUTO;
  auto made = std::make_unique<model::Model>(std::move(group), exchange);
  if (parts::Hook hook = movement_hook(options, exactness); hook.kind != parts::Hook::Kind::kNone)
    made->set_hook(std::move(hook));
  for (size_t i = 0; i < parameters_.size(); ++i)
    static_cast<void>(made->add_parameter(parameter(i).name, global(i), nullptr));
  made->commit();
  exchange_ = std::move(made);
}

void Fragment::disconnect() noexcept {
  if (exchange_ == nullptr) return;
  sent_before_ = sent_bytes();
  exchange_.reset();
}

int64_t Fragment::sent_bytes() const {
  if (exchange_ == nullptr) return sent_before_;
  ddp_model_stats stats{};
  exchange_->passes().meter().fill(stats);
  return sent_before_ + stats.total_sent_bytes;
}

void Fragment::begin() {
  exchange_->begin_backward(DDP_PASS_REDUCE);
  for (size_t i = parameters_.size(); i-- > 0;) {
    const Tensor& value = parameter(i).value;
    const Tensor start = global(i);
    std::byte* const movement = exchange_->table().parameter(static_cast<int32_t>(i)).grad.data;
    if (value.dtype == start.dtype) {
      if (value.count > 0) std::memcpy(movement, value.data, static_cast<size_t>(value.bytes()));
    } else {
      cpu::convert(value.dtype, value.data, start.dtype, movement, value.count);
    }
    with_type(start.dtype, [&](auto* type) {
      auto* const moved = reinterpret_cast<decltype(type)>(movement);
      const auto* const from = reinterpret_cast<decltype(type)>(start.data);
      for (int64_t k = 0; k < start.count; ++k) moved[k] = from[k] - moved[k];
    });
    exchange_->pass().mark_ready(static_cast<int32_t>(i));
  }
}

void Fragment::end(const ddp_outer_options& options, double keep) {
  exchange_->end_backward();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor to = global(i);
    std::byte* const movement = exchange_->table().parameter(static_cast<int32_t>(i)).grad.data;
    with_type(to.dtype, [&](auto* type) {
      using Pointer = decltype(type);
      step(options, reinterpret_cast<Pointer>(movement), reinterpret_cast<Pointer>(momentum(i).data),
           reinterpret_cast<Pointer>(to.data), to.count);
    });
    follow(i, movement, keep);
  }
}

/// value = keep * value + (1 - keep) * global, rounded once. `scratch`: room for the parameter as its global value.
void Fragment::follow(size_t index, std::byte* scratch, double keep) const noexcept {
  const Tensor& value = parameter(index).value;
  const Tensor from = global(index);
  if (keep == 0) {
    if (value.dtype == from.dtype) {
      if (value.count > 0) std::memcpy(value.data, from.data, static_cast<size_t>(value.bytes()));
    } else {
      cpu::convert(from.dtype, from.data, value.dtype, value.data, value.count);
    }
    return;
  }
  with_type(from.dtype, [&](auto* type) {
    using Pointer = decltype(type);
    auto* own = reinterpret_cast<Pointer>(value.data);
    if (value.dtype != from.dtype) {
      own = reinterpret_cast<Pointer>(scratch);
      cpu::convert(value.dtype, value.data, from.dtype, scratch, value.count);
    }
    const auto share = static_cast<std::remove_pointer_t<Pointer>>(keep);
    const auto* const global = reinterpret_cast<Pointer>(from.data);
    for (int64_t k = 0; k < value.count; ++k) own[k] = share * own[k] + (1 - share) * global[k];
  });
  if (value.dtype != from.dtype) cpu::convert(from.dtype, scratch, value.dtype, value.data, value.count);
}

}  // namespace ddp::outer
