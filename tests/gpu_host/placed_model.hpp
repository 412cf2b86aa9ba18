// SPDX-License-Identifier: Apache-2.0
// A model (support/training.hpp) of every type where the test wants it, for operations between its passes; a second one in
// host memory is its oracle.
#pragma once

#include "device/gpu/device.hpp"
#include "support/training.hpp"

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

/// A model of all types without an optimizer.
inline Ways placed_ways(Home home, ddp_unused unused = DDP_UNUSED_ALLOW) {
  Ways ways = mixed_ways(home);
  ways.unused = unused;
  ways.is_stepped = false;
  return ways;
}

struct OfGroup {
  std::shared_ptr<group::Group> kept;  // goes after the model
};

struct PlacedModel : OfGroup, Training {
  PlacedModel(group::Group& of, Home home, ddp_unused unused = DDP_UNUSED_ERROR) : Training(of, placed_ways(home, unused)) {}
  /// Of a group of its own.
  explicit PlacedModel(const Ways& asked) : OfGroup{lone_group()}, Training(*kept, asked) {}
  explicit PlacedModel(Home home) : PlacedModel(placed_ways(home)) {}

  [[nodiscard]] const gpu::Device& gpu() const { return group.gpu().device(); }
  [[nodiscard]] int32_t size() const { return model->table().parameter_count(); }
  [[nodiscard]] const Tensor& value(int32_t i) const { return model->table().parameter(i).value; }
  [[nodiscard]] const Tensor& grad(int32_t i) const { return model->table().parameter(i).grad; }
  [[nodiscard]] std::vector<PlacedBytes> contents() const {
    std::vector<PlacedBytes> all;
    for (int32_t i = 0; i < size(); ++i) all.push_back(read(value(i)));
    return all;
  }
  void fill_grads(int step, double largest = 1.0) const {
    for (size_t k = 0; k < Training::size(); ++k)
      fill(k, [&](size_t p, int64_t i) { return largest * gradient(0, step, p, i) / 10.5; });
  }
  /// Whole numbers that differ by rank, so that sums over ranks are exact in every type.
  void fill_whole_grads(int rank, int step) const {
    for (size_t k = 0; k < Training::size(); ++k)
      fill(k, [&](size_t p, int64_t i) { return whole_gradient(rank, step, p, i); });
  }
  void pass() const { reduce(); }
  /// Leaves the memory of the program alone.
  void destroy() {
    model->close();
    model.reset();
  }
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
