// SPDX-License-Identifier: Apache-2.0
#include "model/flat_memory.hpp"

#include <unistd.h>

#include <algorithm>

#include "core/attempt.hpp"
#include "core/dtype.hpp"
#include "device/device.hpp"
#include "group/consensus.hpp"

namespace ddp::model {
namespace {

constexpr int64_t kApart = 256;  // bytes; blocks of one allocation begin at multiples of it

int64_t page_size() noexcept { return static_cast<int64_t>(::sysconf(_SC_PAGESIZE)); }

bool is_split(const PlannedPiece& piece, const Parameter& parameter) noexcept { return piece.count < parameter.value.count; }

}  // namespace

std::vector<FlatMemory::Block> FlatMemory::blocks_of(const Parameters& table, const Plan& plan,
                                                     const std::function<bool(const Parameter&)>& wanted) {
  std::vector<Block> blocks;
  for (size_t b = 0; b < plan.size(); ++b) {
    const PlannedBucket& bucket = plan[b];
    const int64_t size = dtype_size(bucket.dtype);
    if (bucket.count == 0 || std::none_of(bucket.pieces.begin(), bucket.pieces.end(), [&](const PlannedPiece& piece) {
          return wanted(table.parameter(piece.parameter));
        }))
      continue;
    const PlannedPiece& first = bucket.pieces.front();
    const Parameter& parameter = table.parameter(first.parameter);
    if (!is_split(first, parameter))
      blocks.push_back(Block{b, bucket.count * size, bucket.continues && !blocks.empty() && blocks.back().bucket + 1 == b});
    else if (first.first + first.count == parameter.value.count)  // its last elements come first, and are padded
      blocks.push_back(Block{b, (first.first + bucket.count) * size});
  }
  return blocks;
}

std::byte* FlatMemory::take(const Tensor& beside, int64_t bytes) {
  memory_.reserve(memory_.size() + 1);
  memory_.push_back(group_.memory().alloc_beside(beside, bytes));
  return static_cast<std::byte*>(memory_.back());
}

std::byte* FlatMemory::take_pages(const std::vector<Block>& blocks, size_t at, const Tensor& beside) {
  int64_t bytes = blocks[at].bytes;
  for (size_t next = at + 1; next < blocks.size() && blocks[next].behind; ++next) bytes += blocks[next].bytes;
  const int64_t page = page_size();
  std::byte* const found = take(beside, (bytes + page - 1) / page * page + page);
  return found + (page - static_cast<int64_t>(reinterpret_cast<uintptr_t>(found)) % page) % page;
}

std::vector<std::byte*> FlatMemory::allocate(const Parameters& table, const Plan& plan, const char* what,
                                             const std::function<bool(const Parameter&)>& wanted) {
  std::vector<std::byte*> places(table.parameters().size());
  const std::vector<Block> blocks = blocks_of(table, plan, wanted);
  const auto rounded = [](int64_t bytes) { return (bytes + kApart - 1) / kApart * kApart; };
  int64_t on_gpu = 0;
  for (const Block& block : blocks)
    if (plan[block.bucket].on_gpu) on_gpu += rounded(block.bytes);
  const auto allocate = [&] {
    std::byte* next = nullptr;    // of the allocation on the GPU
    std::byte* behind = nullptr;  // the block before, in host memory
    for (size_t at = 0; at < blocks.size(); ++at) {
      const Block& block = blocks[at];
      const PlannedBucket& bucket = plan[block.bucket];
      const Parameter& front = table.parameter(bucket.pieces.front().parameter);
      std::byte* base = nullptr;
      if (bucket.on_gpu) {
        if (next == nullptr) next = take(front.value, on_gpu);
        base = next;
        next += rounded(block.bytes);
      } else {
        base = block.behind       ? behind
               : bucket.is_packed ? take_pages(blocks, at, front.value)
                                  : take(front.value, block.bytes);
        behind = base + block.bytes;
      }
      for (const PlannedPiece& piece : bucket.pieces)
        if (wanted(table.parameter(piece.parameter)))
          places[static_cast<size_t>(piece.parameter)] = base + piece.offset * dtype_size(bucket.dtype);
    }
  };
  on_error([&] { group::all_or_none(group_, what, allocate); }, [this](const Error&) { free(); });
  return places;
}

void FlatMemory::free() noexcept {
  for (void* const memory : memory_) static_cast<void>(try_to([&] { group_.memory().free(memory); }));
  memory_.clear();
}

/// A commit that failed is made again, so a place is given only once the memory stays.
void ModelMemory::add_missing(Parameters& table, const Plan& plan, Values values, void* stream) {
  std::list<FlatMemory> added;
  const std::vector<std::byte*> gradients_at = added.emplace_back(group_).allocate(
      table, plan, "gradient memory",
      [](const Parameter& parameter) { return parameter.owned_grad && parameter.grad.data == nullptr; });
  std::vector<std::byte*> values_at(gradients_at.size());
  if (values == Values::kOwn)
    values_at = added.emplace_back(group_).allocate(table, plan, "memory for values",
                                                    [](const Parameter& parameter) { return !parameter.owned_value; });
  const auto each = [&](const std::vector<std::byte*>& places, const auto& place) {
    for (size_t index = 0; index < places.size(); ++index)
      if (places[index] != nullptr) place(static_cast<int32_t>(index), places[index]);
  };
  each(values_at, [&](int32_t index, std::byte* to) {
    const Tensor& value = table.parameter(index).value;
    if (value.count > 0) device::of(value).copy(to, value.data, value.bytes(), stream);
  });
  if (!plan.empty()) blocks_.splice(blocks_.end(), added);
  each(gradients_at, [&](int32_t index, std::byte* data) { table.place_grad(index, data); });
  each(values_at, [&](int32_t index, std::byte* data) { table.place_value(index, data); });
}

}  // namespace ddp::model
