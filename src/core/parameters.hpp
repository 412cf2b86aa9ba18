// SPDX-License-Identifier: Apache-2.0
// What the caller lent: parameters with their gradients, and buffers, in registration order. Frozen by commit.
// What is removed leaves its place, without elements and without a name, so that the others keep their numbers. Ranks number
// what is there by position, because a rank that joins registers only that.
// A parameter is on a GPU, with its gradient, iff parameter.value.is_on_gpu(); all such tensors are on one GPU.
// Tested by unit/core/table_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/memory_ranges.hpp"
#include "core/tensor.hpp"

namespace ddp {

/// Complex tensors are kept as pairs of real numbers (core/tensor.hpp), so only what goes out looks at `declared`.
struct Parameter {
  std::string name;
  Tensor value;
  Tensor grad;  // data is NULL while libddp owns it and the model is not committed
  ddp_dtype declared = DDP_F32;
  bool owned_grad = false;        // libddp provides the gradient's memory
  bool owned_value = false;       // libddp provides the value's memory, since commit
  std::byte* stand_in = nullptr;  // memory in the place of a gradient that comes later; NULL: this one does not
  bool removed = false;           // nothing is there any more
  bool replanned = false;         // on a GPU: since a recovery the buckets are not those by which that memory is laid out

  /// Is it at the place of its bucket's plan, in one block with the others of the bucket that libddp provides?
  [[nodiscard]] bool lies_in_grad_block() const noexcept { return owned_grad && !replanned; }
  [[nodiscard]] bool lies_in_value_block() const noexcept { return owned_value && !replanned; }
  /// It has been registered without a gradient, and has none yet.
  [[nodiscard]] bool awaits_grad() const noexcept { return stand_in != nullptr && grad.data == stand_in; }
  /// Elements of `grad` for one of the program's: 2 of a complex parameter.
  [[nodiscard]] int64_t reals_each() const noexcept { return declared == grad.dtype ? 1 : 2; }
};

struct Buffer {
  std::string name;
  Tensor value;
  ddp_dtype declared = DDP_F32;
  bool removed = false;
};

class Parameters {
 public:
  /// `grad` NULL: owned by libddp. Throws INVALID_ARGUMENT (bad name, taken name, overlap with a tensor lent before, another
  /// device than the value's).
  int32_t add_parameter(std::string name, const Tensor& value, const Tensor* grad);
  int32_t add_buffer(std::string name, const Tensor& value);
  /// Throws INVALID_ARGUMENT if there is none.
  void remove_parameter(int32_t index);
  void remove_buffer(int32_t index);
  /// Its gradient, which was added with this memory, comes later: until then nothing in it counts.
  void await_grad(int32_t index);

  /// libddp has made memory for the gradient, or the value of the parameter has moved there.
  void place_grad(int32_t index, std::byte* data);
  void place_value(int32_t index, std::byte* data);
  /// Throws INVALID_ARGUMENT unless this tensor, as the program declares it, can be the parameter's gradient.
  void require_like_grad(int32_t index, const Tensor& given) const;
  /// Throws INVALID_ARGUMENT if this memory is that of a value, a buffer, or a gradient of libddp's. `moved`: the gradient
  /// of the parameter, where it is to be.
  void require_free(int32_t index, const Tensor& moved) const;
  /// The gradient is at another address from now on. `is_marked`: as MemoryRanges::move_grad.
  void move_grad(int32_t index, std::byte* data, const MemoryRanges::IsMarked& is_marked);
  /// Has another gradient the memory of this one? The parameter, or MemoryRanges::kNobody; kAwaited: it has no memory yet.
  /// Any thread.
  [[nodiscard]] int32_t contested_by(int32_t index) const noexcept {
    return memory_.is_contested(index) ? memory_.settle(index) : MemoryRanges::kNobody;
  }

  [[nodiscard]] const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  [[nodiscard]] const std::vector<Buffer>& buffers() const noexcept { return buffers_; }
  [[nodiscard]] Parameter& parameter(int32_t index) { return parameters_[static_cast<size_t>(index)]; }
  [[nodiscard]] const Parameter& parameter(int32_t index) const { return parameters_[static_cast<size_t>(index)]; }
  [[nodiscard]] int32_t parameter_count() const noexcept { return static_cast<int32_t>(parameters_.size()); }
  /// Numbers of the parameters that are there, ascending: what is at a position.
  [[nodiscard]] std::vector<int32_t> present() const;
  /// The positions of parameters; what is not there has none.
  [[nodiscard]] std::vector<int32_t> positions_of(const std::vector<int32_t>& indices) const;
  /// The way back, of the positions that there are.
  [[nodiscard]] std::vector<int32_t> indices_at(const std::vector<int32_t>& positions) const;
  /// The first parameter that awaits its gradient; -1: none does.
  [[nodiscard]] int32_t first_awaited() const noexcept;
  /// The GPU of the parameters; NULL: all are in host memory.
  [[nodiscard]] const device::Device* device() const noexcept { return device_; }

 private:
  void check_name(const std::string& name) const;
  void check_memory(const Tensor& tensor, const std::string& what) const;
  [[nodiscard]] std::string name_of(const MemoryRanges::Owner& owner) const;

  std::vector<Parameter> parameters_;
  std::vector<Buffer> buffers_;
  std::unordered_set<std::string> names_;
  mutable MemoryRanges memory_;
  int32_t awaited_ = 0;  // gradients that come later
  const device::Device* device_ = nullptr;
};

}  // namespace ddp
