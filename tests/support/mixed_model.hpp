// SPDX-License-Identifier: Apache-2.0
// A model with tensors of many sizes and dtypes, on a rank's fake GPU, in host memory, or some here and some there.
#pragma once

#include "device/gpu/device.hpp"
#include "model/model.hpp"
#include "support/gpu_world.hpp"
#include "unit/optim/oracle.hpp"

namespace ddp::test {

enum class Place { kHost, kGpu, kMixed };

inline ddp_model_options mixed_model_options() { return {.first_bucket_bytes = 4'000, .bucket_bytes = 20'000}; }

/// One tensor of the model and its memory.
struct Lent {
  std::string name;
  ddp_dtype dtype = DDP_F32;
  int64_t count = 0;
  bool is_buffer = false;
  bool on_gpu = false;
  std::unique_ptr<GpuArray> device{};
  std::vector<std::byte> host{};

  [[nodiscard]] std::vector<std::byte> read() const { return on_gpu ? device->peek<std::byte>() : host; }
  /// Behind the curtain.
  void write(const std::vector<std::byte>& bytes) {
    if (on_gpu)
      device->poke(bytes);
    else
      std::copy(bytes.begin(), bytes.end(), host.begin());
  }
};

class MixedModel {
  group::Group& group_;
  std::vector<Lent> lent_;  // goes after the model

 public:
  MixedModel(group::Group& group, int rank, Place place, const ddp_model_options& options = mixed_model_options(),
             int64_t large = 40'000)
      : group_(group),
        compute(rank),
        model(std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options)) {
    const auto add = [&](std::string name, ddp_dtype dtype, int64_t count, bool is_buffer) {
      lent_.push_back({std::move(name), dtype, count, is_buffer});
    };
    add("large", DDP_F32, large, false);
    for (int i = 0; i < 7; ++i) add("small" + std::to_string(i), i == 3 ? DDP_F64 : DDP_F32, 1 + i * 31, false);
    add("half", DDP_BF16, 333, false);
    add("many", DDP_F64, 7'000, false);
    add("running", DDP_F32, 64, true);
    add("count", DDP_I64, 1, true);
    add("mask", DDP_U8, 77, true);
    add("table", DDP_U8, 50'000, true);
    add("none", DDP_F32, 0, true);
    for (size_t i = 0; i < lent_.size(); ++i) {
      Lent& each = lent_[i];
      each.on_gpu = place == Place::kGpu || (place == Place::kMixed && i % 3 != 1);
      const int64_t bytes = each.count * dtype_size(each.dtype);
      each.host.resize(static_cast<size_t>(bytes));
      if (each.on_gpu) {
        each.device = std::make_unique<GpuArray>(rank, bytes);
        each.write(each.host);
      }
      const Tensor tensor = this->tensor(each);
      each.is_buffer ? model->add_buffer(each.name, tensor) : model->add_parameter(each.name, tensor, nullptr);
    }
  }

  /// The value of each element names its rank; whole numbers, so that sums are exact.
  void fill(int owner, int round) {
    for (size_t i = 0; i < lent_.size(); ++i) lent_[i].write(content(i, owner, round));
  }
  void expect_filled(int owner, int round, const std::string& what) const {
    for (size_t i = 0; i < lent_.size(); ++i)
      expect(lent_[i].read() == content(i, owner, round), what + ": " + lent_[i].name);
  }
  void expect_buffers_filled(int owner, int round) const {
    for (size_t i = 0; i < lent_.size(); ++i)
      if (lent_[i].is_buffer) expect(lent_[i].read() == content(i, owner, round), "the root's buffer: " + lent_[i].name);
  }
  void expect_averaged(int size, int round) const {
    for (size_t i = 0; i < lent_.size(); ++i) {
      if (lent_[i].is_buffer) continue;
      const std::vector<std::byte> got = lent_[i].read();
      for (int64_t e = 0; e < lent_[i].count; ++e) {
        double sum = 0;
        for (int owner = 0; owner < size; ++owner) sum += number(i, owner, round, e);
        expect_equal(get_element(lent_[i].dtype, got.data(), static_cast<size_t>(e)), sum / size,
                     lent_[i].name + " element " + std::to_string(e));
      }
    }
  }
  /// One element, on this rank alone.
  void change(const std::string& name) {
    Lent& each = lent(name);
    std::vector<std::byte> bytes = each.read();
    bytes.back() ^= std::byte{1};
    each.write(bytes);
  }
  void pass() {
    model->begin_backward(DDP_PASS_REDUCE);
    for (int32_t i = model->table().parameter_count(); i-- > 0;) model->pass().mark_ready(i, compute.get());
    model->end_backward(compute.get());
  }

  /// Those that have content.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Lent& each : lent_)
      if (each.count > 0) names.push_back(each.name);
    return names;
  }
  [[nodiscard]] Lent& lent(const std::string& name) {
    for (Lent& each : lent_)
      if (each.name == name) return each;
    throw std::runtime_error("no tensor " + name);
  }
  [[nodiscard]] Tensor tensor(const std::string& name) { return tensor(lent(name)); }
  [[nodiscard]] int64_t bytes(const std::string& name) { return static_cast<int64_t>(lent(name).host.size()); }
  [[nodiscard]] const gpu::Device& device() { return group_.gpu().device(); }
  [[nodiscard]] const std::vector<Lent>& all() const noexcept { return lent_; }

  GpuStream compute;
  std::shared_ptr<model::Model> model;

 private:
  [[nodiscard]] Tensor tensor(Lent& each) {
    return each.on_gpu ? each.device->tensor(group_, each.dtype) : flat_tensor(each.host.data(), each.dtype, each.count);
  }
  static double number(size_t tensor, int owner, int round, int64_t element) {
    return static_cast<double>((element * 7 + static_cast<int64_t>(tensor) * 3 + round * 5) % 16 * 4 + owner * 4);
  }
  [[nodiscard]] std::vector<std::byte> content(size_t tensor, int owner, int round) const {
    const Lent& each = lent_[tensor];
    std::vector<std::byte> bytes(each.host.size());
    for (int64_t e = 0; e < each.count; ++e)
      set_element(each.dtype, bytes.data(), static_cast<size_t>(e), number(tensor, owner, round, e));
    return bytes;
  }
};

}  // namespace ddp::test
