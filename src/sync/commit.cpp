#include "sync/commit.hpp"

#include <map>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "sync/description.hpp"

namespace ddp {
namespace {

bool all_equal(const std::vector<std::string>& answers) {
  for (const std::string& answer : answers)
    if (answer != answers.front()) return false;
  return true;
}

/// Ranks that do not hold what most ranks hold (ties: what the lowest rank holds).
std::vector<int32_t> minority(const std::vector<uint64_t>& hashes) {
  std::map<uint64_t, int32_t> votes;
  for (const uint64_t hash : hashes) ++votes[hash];
  uint64_t best = hashes.front();
  for (const uint64_t hash : hashes)
    if (votes[hash] > votes[best]) best = hash;
  std::vector<int32_t> ranks;
  for (size_t rank = 0; rank < hashes.size(); ++rank)
    if (hashes[rank] != best) ranks.push_back(static_cast<int32_t>(rank));
  return ranks;
}

}  // namespace

uint64_t agree_on_model(Group& group, const Table& table, const ddp_model_options& options) {
  const std::vector<std::string> lines = describe_model(table, options);
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

void distribute_values(Group& group, const Table& table, int32_t root) {
  for (const Parameter& parameter : table.parameters()) group.broadcast(parameter.value, root);
  for (const Buffer& buffer : table.buffers()) group.broadcast(buffer.value, root);
}

void compare_replicas(Group& group, const Table& table) {
  std::vector<std::string> names;
  ByteWriter mine;
  const auto add = [&](const char* kind, const std::string& name, const Tensor& tensor) {
    names.push_back(std::string(kind) + " \"" + name + "\"");
    mine.number(content_hash(tensor.data, static_cast<size_t>(tensor.bytes())));
  };
  for (const Parameter& parameter : table.parameters()) add("parameter", parameter.name, parameter.value);
  for (const Buffer& buffer : table.buffers()) add("buffer", buffer.name, buffer.value);
  const std::vector<std::string> answers = group.gather("replica check", mine.bytes());
  if (all_equal(answers)) return;
  std::vector<ByteReader> readers(answers.begin(), answers.end());
  for (const std::string& name : names) {
    std::vector<uint64_t> hashes;
    for (ByteReader& reader : readers) hashes.push_back(reader.number<uint64_t>());
    const std::vector<int32_t> odd = minority(hashes);
    if (!odd.empty())
      throw Error(DDP_ERROR_MISMATCH, "the replicas differ: " + name + " is different on " + name_ranks(odd) +
                                          " from what most ranks hold; load a checkpoint or commit again to make them equal");
  }
}

}  // namespace ddp
