#include "model/commit.hpp"

#include "core/bytes.hpp"
#include "core/description.hpp"
#include "core/hash.hpp"
#include "model/coalesced_broadcast.hpp"

namespace ddp::model {
namespace {

bool all_equal(const std::vector<std::string>& answers) {
  for (const std::string& answer : answers)
    if (answer != answers.front()) return false;
  return true;
}

}  // namespace

uint64_t agree_on_model(group::Group& group, const Parameters& table, const ddp_model_options& options,
                        const std::string& hook) {
  const std::vector<std::string> lines = describe_model(table, options, hook);
  const std::string packed = pack_lines(lines);
  const uint64_t hash = content_hash(packed.data(), packed.size());
  ByteWriter mine;
  mine.number(hash);
  if (all_equal(group.gather("model", mine.bytes()))) return hash;
  std::vector<std::vector<std::string>> by_rank;
  for (const std::string& answer : group.gather("model description", packed)) by_rank.push_back(unpack_lines(answer));
  throw Error(DDP_ERROR_MISMATCH, "ddp_model_commit: the ranks registered different models: " +
                                      first_difference(by_rank).value_or("their hashes differ but not their descriptions"));
}

void distribute_values(group::Group& group, const Parameters& table, int32_t root, void* stream) {
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : table.parameters()) tensors.push_back(parameter.value);
  for (const Buffer& buffer : table.buffers()) tensors.push_back(buffer.value);
  broadcast_coalesced(group, tensors, root, stream);
}

}  // namespace ddp::model
