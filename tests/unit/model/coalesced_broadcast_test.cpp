// SPDX-License-Identifier: Apache-2.0
// Every byte of every tensor is sent once, in few messages.
#include "model/coalesced_broadcast.hpp"

#include "support/check.hpp"
#include "support/group_world.hpp"

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::vector<Tensor> tensors_of(const std::vector<int64_t>& sizes, std::vector<std::vector<std::byte>>& memory) {
  std::vector<Tensor> tensors;
  for (const int64_t size : sizes) {
    memory.emplace_back(static_cast<size_t>(size));
    tensors.push_back(flat_tensor(memory.back().data(), DDP_U8, size));
  }
  return tensors;
}

ddp_case(every_byte_is_in_one_message) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> sizes(random() % 40);
    for (int64_t& size : sizes)
      size = random() % 3 == 0 ? static_cast<int64_t>(random() % 100'000) : static_cast<int64_t>(random() % 500);
    const int64_t limit = round % 2 == 0 ? kNoLimit : 1 + static_cast<int64_t>(random() % 50'000);
    std::vector<std::vector<std::byte>> memory;
    std::vector<int64_t> reached(sizes.size());
    for (const model::Message& message : model::plan_messages(tensors_of(sizes, memory), limit)) {
      int64_t bytes = 0;
      expect(!message.empty(), "no empty message");
      for (const model::CoalescedPart& span : message) {
        expect(span.bytes > 0 && span.bytes <= limit, "within the limit");
        expect_equal(span.offset, reached[span.tensor], "offset");
        reached[span.tensor] += span.bytes;
        bytes += span.bytes;
      }
      expect(message.size() == 1 || bytes <= model::kPackBytes, "a packed message fits");
    }
    for (size_t i = 0; i < sizes.size(); ++i) expect_equal(reached[i], sizes[i], "bytes sent");
  }
}

ddp_case(tiny_tensors_share_a_message) {
  std::vector<std::vector<std::byte>> memory;
  expect_equal(model::plan_messages(tensors_of(std::vector<int64_t>(1000, 64), memory), kNoLimit).size(), size_t{1},
               "messages of 1000 tiny tensors");
  expect_equal(model::plan_messages(tensors_of({64, 64, 1 << 20, 64, 64}, memory), kNoLimit).size(), size_t{3},
               "messages with a large one between");
}

ddp_ranks_case(run_groups, all_ranks_receive_what_the_root_has, 1, 2, 3, 4) {
  const int32_t root = group.size() - 1;
  std::vector<std::vector<std::byte>> memory;
  const std::vector<Tensor> tensors =
      tensors_of({5, 0, 100'000, 7, 300, model::kSmallBytes, model::kSmallBytes + 1, 1}, memory);
  for (size_t t = 0; t < tensors.size(); ++t)
    for (size_t i = 0; i < memory[t].size(); ++i)
      memory[t][i] = static_cast<std::byte>(i * 7 + t + static_cast<size_t>(rank) * 101);
  model::broadcast_coalesced(group, tensors, root);
  for (size_t t = 0; t < tensors.size(); ++t)
    for (size_t i = 0; i < memory[t].size(); ++i)
      expect(memory[t][i] == static_cast<std::byte>(i * 7 + t + static_cast<size_t>(root) * 101), "the root's bytes");
  group.barrier();
}
