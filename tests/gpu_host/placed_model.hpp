// SPDX-License-Identifier: Apache-2.0
// A model whose parameters are where the test wants them, in host memory or on a fake GPU; a second one of the same seed in
// host memory is its oracle.
#pragma once

#include "device/gpu/device.hpp"
#include "model/model.hpp"
#include "optim/optimizer.hpp"
#include "support/gpu_world.hpp"
#include "unit/optim/oracle.hpp"

namespace ddp::test {

using PlacedBytes = std::vector<std::byte>;

/// The fake GPU is new, and at the end nothing of it is left and nothing went wrong.
inline void on_fake_gpu(void (*body)()) {
  fake_gpu::reset();
  gpu::set_table(&fake_gpu::table());
  body();
  gpu::set_table(nullptr);
  for (const std::string& text : fake_gpu::violations()) print_error("%s\n", text.c_str());
  expect_equal(fake_gpu::violations().size(), size_t{0}, "violations");
  expect_equal(fake_gpu::live().total(), 0, "things of the GPU that are left");
}
#define fake_gpu_host_case(function)                                                       \
  void function();                                                                         \
  [[maybe_unused]] const bool function##_is_listed =                                       \
      ddp::test::list_case(__FILE__, #function, [] { ddp::test::on_fake_gpu(function); }); \
  void function()

inline std::shared_ptr<group::Group> lone_group() {
  ddp_group_options options = world_options(0, 1);
  options.device_index = 0;
  return group::Group::create("local://alone", options);
}

struct Placed {
  ddp_dtype dtype;
  int64_t count;
  Home home = Home::kGpu;
};

/// All types; more than one block of a norm, one element, none.
inline std::vector<Placed> all_types(Home home) {
  return {{DDP_F32, 3000, home}, {DDP_F64, 13, home}, {DDP_F16, 1500, home}, {DDP_BF16, 2049, home},
          {DDP_F32, 1, home},    {DDP_F32, 0, home},  {DDP_BF16, 5, home},   {DDP_F64, 1025, home}};
}
inline std::vector<Placed> mixed_homes() {
  std::vector<Placed> placed = all_types(Home::kGpu);
  for (size_t i = 0; i < placed.size(); i += 3) placed[i].home = Home::kHost;
  return placed;
}

class PlacedModel {
 public:
  PlacedModel(std::shared_ptr<group::Group> group, const std::vector<Placed>& placed, ddp_unused unused = DDP_UNUSED_ALLOW)
      : group_(std::move(group)) {
    ddp_model_options options{};
    options.first_bucket_bytes = 4'000;
    options.bucket_bytes = 16'000;
    options.unused = unused;
    model = std::make_shared<model::Model>(group_, options);
    for (const Placed& each : placed)
      if (each.home == Home::kGpu && stream_ == nullptr)
        stream_ = std::make_unique<gpu::Stream>(group_->gpu().device(), gpu::Stream::Priority::kNormal);
    for (size_t i = 0; i < placed.size(); ++i) {
      const Tensor value = lend(placed[i]), grad = lend(placed[i]);
      write(value, random_bytes(value.dtype, value.count, 2.0, 50 + i));
      model->add_parameter("p" + std::to_string(i), value, &grad);
    }
    if (stream() != nullptr) gpu().synchronize(stream());  // rank 0's values are to be there
    model->commit(stream());
  }
  ~PlacedModel() { model->close(); }

  std::shared_ptr<model::Model> model;

  [[nodiscard]] void* stream() const noexcept { return stream_ == nullptr ? nullptr : stream_->get(); }
  [[nodiscard]] const gpu::Device& gpu() const { return group_->gpu().device(); }
  [[nodiscard]] int32_t size() const { return model->table().parameter_count(); }
  [[nodiscard]] const Tensor& value(int32_t i) const { return model->table().parameter(i).value; }
  [[nodiscard]] const Tensor& grad(int32_t i) const { return model->table().parameter(i).grad; }

  static PlacedBytes random_bytes(ddp_dtype dtype, int64_t count, double scale, uint64_t seed) {
    PlacedBytes bytes(static_cast<size_t>(count * dtype_size(dtype)));
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> numbers(-scale, scale);
    for (int64_t i = 0; i < count; ++i) set_element(dtype, bytes.data(), static_cast<size_t>(i), numbers(random));
    return bytes;
  }
  /// As the program would: in the order of its stream. The bytes are in use until that is done.
  void write(const Tensor& tensor, const PlacedBytes& bytes) const {
    if (bytes.empty()) return;
    if (!tensor.is_on_gpu()) return static_cast<void>(std::memcpy(tensor.data, bytes.data(), bytes.size()));
    tensor.device->copy(tensor.data, bytes.data(), tensor.bytes(), stream());
    gpu().synchronize(stream());
  }
  [[nodiscard]] PlacedBytes read(const Tensor& tensor) const {
    PlacedBytes bytes(static_cast<size_t>(tensor.bytes()));
    if (bytes.empty()) return bytes;
    if (tensor.is_on_gpu()) {
      tensor.device->copy(bytes.data(), tensor.data, tensor.bytes(), stream());
      gpu().synchronize(stream());
    } else {
      std::memcpy(bytes.data(), tensor.data, bytes.size());
    }
    return bytes;
  }
  void fill_grads(uint64_t step, double scale = 1.0) const {
    for (int32_t i = 0; i < size(); ++i)
      write(grad(i), random_bytes(grad(i).dtype, grad(i).count, scale, 1000 * step + static_cast<uint64_t>(i)));
  }
  /// Whole numbers that differ by rank, so that sums over ranks are exact in every type.
  void fill_whole_grads(int rank, int step) const {
    for (int32_t p = 0; p < size(); ++p) {
      PlacedBytes bytes(static_cast<size_t>(grad(p).bytes()));
      for (int64_t i = 0; i < grad(p).count; ++i)
        set_element(grad(p).dtype, bytes.data(), static_cast<size_t>(i),
                    static_cast<double>((i * 7 + p * 13 + step * 29 + rank * 5) % 31 - 15));
      write(grad(p), bytes);
    }
  }
  /// A REDUCE pass in which all but `missing` are marked.
  void pass(int32_t missing = -1) const {
    model->begin_backward(DDP_PASS_REDUCE);
    for (int32_t i = size(); i-- > 0;)
      if (i != missing) model->pass().mark_ready(i, stream());
    model->end_backward(stream());
  }
  void set_grad_element(int32_t i, size_t element, double number) const {
    PlacedBytes bytes = read(grad(i));
    set_element(grad(i).dtype, bytes.data(), element, number);
    write(grad(i), bytes);
  }

 private:
  Tensor lend(const Placed& placed) {
    const int64_t bytes = placed.count * dtype_size(placed.dtype);
    if (placed.home == Home::kHost) {
      host_.emplace_back(static_cast<size_t>(bytes));
      return flat_tensor(host_.back().data(), placed.dtype, placed.count);
    }
    device_.emplace_back(group_->gpu().device(), bytes, "a test's tensor");
    Tensor tensor = flat_tensor(device_.back().data(), placed.dtype, placed.count);
    tensor.device_index = group_->gpu().device().index();
    group_->gpu().bind(tensor, "a test's tensor");
    return tensor;
  }

  std::shared_ptr<group::Group> group_;
  std::unique_ptr<gpu::Stream> stream_;
  std::vector<PlacedBytes> host_;
  std::vector<gpu::Array> device_;
};

/// Values, gradients and, if there are optimizers, state and fields of both are the same bits.
inline void expect_same(const PlacedModel& got, const PlacedModel& wanted, const std::string& what) {
  for (int32_t i = 0; i < wanted.size(); ++i) {
    expect(got.read(got.value(i)) == wanted.read(wanted.value(i)), what + ": value of parameter " + std::to_string(i));
    expect(got.read(got.grad(i)) == wanted.read(wanted.grad(i)), what + ": gradient of parameter " + std::to_string(i));
  }
}
inline void expect_same_state(const PlacedModel& got, model::ReplicaState& got_state, const PlacedModel& wanted,
                              model::ReplicaState& wanted_state, const std::string& what) {
  const auto got_tensors = got_state.state_tensors(), wanted_tensors = wanted_state.state_tensors();
  expect_equal(got_tensors.size(), wanted_tensors.size(), what + ": tensors");
  for (size_t t = 0; t < wanted_tensors.size(); ++t) {
    expect_equal(got_tensors[t].name, wanted_tensors[t].name, "name");
    expect(got.read(got_tensors[t].tensor) == wanted.read(wanted_tensors[t].tensor), what + ": " + wanted_tensors[t].name);
  }
  expect(got_state.state_fields() == wanted_state.state_fields(), what + ": fields");
}

}  // namespace ddp::test
