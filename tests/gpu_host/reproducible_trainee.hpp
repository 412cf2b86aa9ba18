// SPDX-License-Identifier: Apache-2.0
// A model that is trained on a GPU or in host memory, in one of many ways, and its results to compare.
#pragma once

#include <optional>

#include "gpu_host/reproducible_group.hpp"
#include "model/uneven.hpp"
#include "optim/adam.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {

struct Way {
  bool shard = false, in_backward = false, weights = false, owned = true, unused = false;
  ddp_dtype wire{};
  bool skips = false;  // the last rank, the second pass
  bool voids = false;  // the second pass
  bool joins = false;  // the last rank, after one pass
};

/// What training leaves: parameters, gradients (not of a sharded step), state of the optimizer.
struct Trained {
  std::vector<GroupBytes> values, grads, state;
  bool operator==(const Trained&) const = default;
};

/// One rank's model, in host memory or on its GPU.
class Trainee {
 public:
  Trainee(group::Group& group, ddp_dtype dtype, const Way& way, bool on_gpu)
      : group_(group), dtype_(dtype), way_(way), on_gpu_(on_gpu) {
    if (on_gpu) stream_.emplace(group.rank());
    ddp_model_options options{};
    options.first_bucket_bytes = 1'000;
    options.bucket_bytes = 30'000;
    options.wire = way.wire;
    if (way.weights) options.divisor = DDP_DIVISOR_WEIGHTS;
    if (way.unused) options.unused = DDP_UNUSED_ALLOW;
    options.uneven_inputs = way.joins ? 1 : 0;
    model_ = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    here_.reserve(2 * kCounts.size());
    there_.reserve(2 * kCounts.size());
    for (size_t p = 0; p < kCounts.size(); ++p) {
      const Tensor value = lend(random_numbers(dtype, kCounts[p], 99 + p));
      const Tensor grad = lend(GroupBytes(static_cast<size_t>(kCounts[p] * dtype_size(dtype))));
      model_->add_parameter("p" + std::to_string(p), value, way.owned ? nullptr : &grad);
    }
    AdamOptions adam;
    adam.rate = 1.0 / 64;
    adam.shard = way.shard;
    adam.in_backward = way.in_backward;
    optimizer_ = std::make_shared<optim::Adam>(model_, adam, adam);
    if (optimizer_->in_passes() != nullptr) model_->optimizer_slot().attach(optimizer_);
    model_->commit(order());
    if (way.weights) set_weight(*model_, 1 + 0.37 * group.rank());
  }
  ~Trainee() { model_->close(); }

  void train() {
    const bool last = group_.size() > 1 && group_.rank() == group_.size() - 1;
    for (int pass = 0; pass < 3 && !(way_.joins && last && pass > 0); ++pass) {
      if (way_.voids && pass == 1) {
        void_pass();
        continue;
      }
      if (way_.skips && pass == 1 && last)
        skip_backward(*model_, order());
      else
        backward(pass);
      optimizer_->step(order());
    }
    if (way_.joins) join(*model_, order());
  }
  [[nodiscard]] Trained result() {
    Trained all;
    for (int32_t p = 0; p < model_->table().parameter_count(); ++p) {
      all.values.push_back(read(model_->table().parameter(p).value));
      if (!way_.shard) all.grads.push_back(read(model_->table().parameter(p).grad));
    }
    for (const model::StateTensor& each : optimizer_->state_tensors()) all.state.push_back(whole(each));
    return all;
  }
  [[nodiscard]] std::string plan() const { return model_->pass().describe_plan(); }

 private:
  static inline const std::vector<int64_t> kCounts = {300, 5000, 7, 9001, 64};

  [[nodiscard]] void* order() const { return on_gpu_ ? stream_->get() : nullptr; }
  Tensor lend(const GroupBytes& numbers) {
    here_.push_back(numbers);
    const auto count = static_cast<int64_t>(numbers.size()) / dtype_size(dtype_);
    if (!on_gpu_) return flat_tensor(here_.back().data(), dtype_, count);
    there_.emplace_back(group_.rank(), static_cast<int64_t>(numbers.size())).poke(numbers);
    return there_.back().tensor(group_, dtype_);
  }
  void backward(int pass) {
    model_->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = 0; p < kCounts.size(); ++p) {
      const auto index = static_cast<int32_t>(p);
      const bool used = !way_.unused || (p != 3 && (p != 1 || group_.rank() == 0));  // 3: by no rank
      write(model_->table().parameter(index).grad,
            used ? random_numbers(dtype_, kCounts[p], static_cast<uint64_t>(1000 * pass + 10 * group_.rank()) + p)
                 : GroupBytes(static_cast<size_t>(kCounts[p] * dtype_size(dtype_))));
      if (used) model_->pass().mark_ready(index, order());
    }
    model_->end_backward(order());
  }
  /// The first rank gives up before its last gradient.
  void void_pass() {
    model_->begin_backward(DDP_PASS_REDUCE);
    for (int32_t p = model_->table().parameter_count(); p-- > 0;) {
      const Tensor& grad = model_->table().parameter(p).grad;
      write(grad, random_numbers(dtype_, grad.count, static_cast<uint64_t>(77 + p)));
      if (group_.rank() > 0 || p > 0) model_->pass().mark_ready(p, order());
    }
    if (group_.rank() == 0)
      abandon_backward(*model_, "a test", order());
    else
      static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE, [&] { model_->end_backward(order()); }));
  }
  void write(const Tensor& to, const GroupBytes& bytes) {
    if (on_gpu_) stream_->synchronize();
    if (on_gpu_) expect(fake_gpu::poke(to.data, bytes.data(), to.bytes()), "poked");
    if (!on_gpu_) std::memcpy(to.data, bytes.data(), bytes.size());
  }
  [[nodiscard]] GroupBytes read(const Tensor& tensor) {
    GroupBytes bytes(static_cast<size_t>(tensor.bytes()));
    if (bytes.empty()) return bytes;
    if (!tensor.is_on_gpu()) {
      std::memcpy(bytes.data(), tensor.data, bytes.size());
    } else {
      stream_->synchronize();
      expect(fake_gpu::peek(bytes.data(), tensor.data, tensor.bytes()), "peeked");
    }
    return bytes;
  }

  /// Of all ranks, where each holds a part.
  [[nodiscard]] GroupBytes whole(const model::StateTensor& state) {
    if (state.parts.empty()) return read(state.tensor);
    const int64_t size = dtype_size(state.tensor.dtype);
    const GroupBytes own = read(flat_part(state.tensor, 0, count_of(state.parts[static_cast<size_t>(group_.rank())])));
    const auto parts = group_.gather("state", std::string_view(reinterpret_cast<const char*>(own.data()), own.size()));
    GroupBytes all(static_cast<size_t>(state.tensor.bytes()));
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const char* from = parts[rank].data();
      for (const OwnedSpan& span : state.parts[rank]) {
        std::memcpy(all.data() + span.first * size, from, static_cast<size_t>(span.count * size));
        from += span.count * size;
      }
    }
    return all;
  }

  group::Group& group_;
  const ddp_dtype dtype_;
  const Way way_;
  const bool on_gpu_;
  std::optional<GpuStream> stream_;
  std::vector<GpuArray> there_;
  std::vector<GroupBytes> here_;
  std::shared_ptr<model::Model> model_;
  std::shared_ptr<optim::Adam> optimizer_;
};

inline Trained trained(group::Group& group, ddp_dtype dtype, const Way& way, bool on_gpu) {
  Trainee trainee(group, dtype, way, on_gpu);
  trainee.train();
  return trainee.result();
}

inline void expect_equal_training(const Trained& got, const Trained& wanted, const std::string& what) {
  expect(got.values == wanted.values, what + ": parameters");
  expect(got.grads == wanted.grads, what + ": gradients");
  expect(got.state == wanted.state, what + ": state of the optimizer");
}

}  // namespace ddp::test
