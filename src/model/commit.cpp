// SPDX-License-Identifier: Apache-2.0
#include "model/commit.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/bytes.hpp"
#include "core/description.hpp"
#include "core/hash.hpp"
#include "device/gpu/transfer.hpp"
#include "group/consensus.hpp"
#include "model/coalesced_broadcast.hpp"

namespace ddp::model {
namespace {

constexpr int64_t kLookUs = 100;

/// Until the values are there, so that nothing that breaks the group later leaves rubbish in them.
void await_values(group::Group& group, const gpu::Device& device, void* stream) {
  const gpu::Event arrived(device);
  arrived.record(stream);
  while (!arrived.is_done()) {
    group.health().check_no_fault();
    std::this_thread::sleep_for(std::chrono::microseconds(kLookUs));
  }
  group.health().check_no_fault();  // NCCL may have been ended meanwhile
}

}  // namespace

uint64_t agree_on_model(group::Group& group, const Parameters& table, const ddp_model_options& options,
                        const std::string& hook, std::vector<std::string> more) {
  std::vector<std::string> lines = describe_model(table, options, hook);
  for (std::string& line : more) lines.push_back(std::move(line));
  const std::string packed = pack_lines(lines);
  const uint64_t hash = content_hash(packed.data(), packed.size());
  ByteWriter mine;
  mine.number(hash);
  if (bootstrap::all_equal(group.gather("model", mine.bytes()))) return hash;
  std::vector<std::vector<std::string>> by_rank;
  for (const std::string& answer : group.gather("model description", packed)) by_rank.push_back(unpack_lines(answer));
  const auto other = std::find_if(by_rank.begin(), by_rank.end(), [&](const auto& each) { return each != by_rank[0]; });
  ErrorDetails details = details_of_difference(by_rank);
  details.parameters = table.indices_at(details.parameters);
  throw Error(DDP_ERROR_MISMATCH, "ddp_model_commit: the ranks registered different models: " +
                                      first_difference(by_rank).value_or("their hashes differ but not their descriptions"))
      .with(std::move(details))
      .about(static_cast<int32_t>(other == by_rank.end() ? -1 : other - by_rank.begin()));
}

void distribute_values(group::Group& group, const Parameters& table, int32_t root, void* stream) {
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : table.parameters()) tensors.push_back(parameter.value);
  for (const Buffer& buffer : table.buffers()) tensors.push_back(buffer.value);
  distribute(group, tensors, root, stream);
}

void distribute(group::Group& group, const std::vector<Tensor>& tensors, int32_t root, void* stream) {
  broadcast_coalesced(group, tensors, root, stream);
  if (const gpu::Device* const device = gpu::device_of(tensors); device != nullptr && group.size() > 1)
    group::or_break(group, group::Part::kOwn, [&] { await_values(group, *device, stream); });
}

}  // namespace ddp::model
