// SPDX-License-Identifier: Apache-2.0
#include "model/drift.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/bytes.hpp"
#include "core/description.hpp"
#include "core/hash.hpp"
#include "device/device.hpp"
#include "device/gpu/scratch.hpp"
#include "group/consensus.hpp"
#include "group/gpu.hpp"

namespace ddp::model {
namespace {

/// The ranks that hold each content of one tensor, the lowest rank's first.
std::vector<std::vector<int32_t>> camps_of(const std::vector<std::vector<uint64_t>>& by_rank, size_t tensor) {
  std::vector<std::vector<int32_t>> camps;
  std::map<uint64_t, size_t> camp_of;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto [at, is_new] = camp_of.emplace(by_rank[rank][tensor], camps.size());
    if (is_new) camps.emplace_back();
    camps[at->second].push_back(static_cast<int32_t>(rank));
  }
  return camps;
}

/// The camp with the most ranks; NULL if two have as many.
const std::vector<int32_t>* largest(const std::vector<std::vector<int32_t>>& camps) {
  const std::vector<int32_t>* best = nullptr;
  size_t as_large = 0;
  for (const std::vector<int32_t>& camp : camps) {
    if (best == nullptr || camp.size() > best->size()) {
      best = &camp;
      as_large = 1;
    } else if (camp.size() == best->size()) {
      ++as_large;
    }
  }
  return as_large == 1 ? best : nullptr;
}

/// All ranks but those of `camp`, which is sorted.
std::vector<int32_t> others(size_t size, const std::vector<int32_t>& camp) {
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < static_cast<int32_t>(size); ++rank)
    if (!std::binary_search(camp.begin(), camp.end(), rank)) ranks.push_back(rank);
  return ranks;
}

std::string describe_camps(const std::string& name, const std::vector<std::vector<int32_t>>& camps, size_t size) {
  if (size == 2) return name + " differs between rank 0 and rank 1";
  if (const std::vector<int32_t>* most = largest(camps))
    return name + " is different on " + name_ranks(others(size, *most)) + " from what most ranks hold";
  std::string text = name + " has no content that most ranks hold: ";
  for (size_t i = 0; i < camps.size(); ++i) text += (i == 0 ? "one on " : ", another on ") + name_ranks(camps[i]);
  return text;
}

/// The tensors of one device, as bytes, and their places in the list.
struct Share {
  const device::Device* home;
  std::vector<device::Span> spans;
  std::vector<size_t> places;
};

std::vector<Share> shares_of(const std::vector<Tensor>& tensors) {
  std::vector<Share> shares;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    const device::Device& home = tensor.count > 0 ? device::of(tensor) : device::host();
    auto share = std::find_if(shares.begin(), shares.end(), [&](const Share& each) { return each.home == &home; });
    if (share == shares.end()) share = shares.insert(share, Share{&home, {}, {}});
    share->spans.push_back({tensor.data, nullptr, tensor.bytes()});
    share->places.push_back(i);
  }
  return shares;
}

std::vector<uint64_t> hashes_of(group::Group& group, const Share& share, void* stream) {
  std::vector<uint64_t> hashes(share.spans.size());
  std::optional<gpu::Scratch::Use> scratch;
  if (!share.home->is_immediate())
    scratch.emplace(group.gpu().scratch().take(std::ssize(hashes) * static_cast<int64_t>(sizeof(uint64_t)), stream));
  share.home->hash(share.spans.data(), std::ssize(share.spans), scratch ? scratch->data() : nullptr, hashes.data(), stream);
  if (scratch) scratch->done();
  return hashes;
}

}  // namespace

std::optional<Drift> judge(const std::vector<std::string>& names, const std::vector<std::vector<uint64_t>>& by_rank) {
  const size_t size = by_rank.size();
  std::optional<Drift> drift;
  bool tie = false;
  std::set<int32_t> named;
  std::vector<int32_t> right(size);  // the ranks that were with the most so far
  std::iota(right.begin(), right.end(), 0);
  for (size_t tensor = 0; tensor < names.size(); ++tensor) {
    const std::vector<std::vector<int32_t>> camps = camps_of(by_rank, tensor);
    if (camps.size() == 1) continue;
    const std::vector<int32_t>* most = largest(camps);
    if (!drift) {
      drift.emplace();
      drift->text = describe_camps(names[tensor], camps, size);
      drift->first = tensor;
    }
    drift->differing.push_back(static_cast<int32_t>(tensor));
    for (const int32_t rank : others(size, most != nullptr && size > 2 ? *most : std::vector<int32_t>())) named.insert(rank);
    tie = tie || most == nullptr;
    if (tie) continue;
    std::vector<int32_t> both;
    std::set_intersection(right.begin(), right.end(), most->begin(), most->end(), std::back_inserter(both));
    right = std::move(both);
  }
  if (drift && !tie && !right.empty()) {
    drift->source = right.front();
    drift->odd = others(size, right);
  }
  if (drift) drift->ranks.assign(named.begin(), named.end());
  return drift;
}

std::vector<uint64_t> content_hashes(group::Group& group, const std::vector<Tensor>& tensors, void* stream) {
  std::vector<uint64_t> hashes(tensors.size());
  for (const Share& share : shares_of(tensors)) {
    const std::vector<uint64_t> found =
        group::or_break(group, group::Part::kOwn, [&] { return hashes_of(group, share, stream); });
    for (size_t i = 0; i < found.size(); ++i) hashes[share.places[i]] = found[i];
  }
  return hashes;
}

void NamedTensors::add(std::string name, const Tensor& tensor) {
  names.push_back(std::move(name));
  tensors.push_back(tensor);
}

void NamedTensors::add_values(const Parameters& table) {
  for (const Parameter& each : table.parameters())
    if (!each.removed) add("parameter \"" + each.name + "\"", each.value);
}

void NamedTensors::add_buffers(const Parameters& table) {
  for (const Buffer& each : table.buffers())
    if (!each.removed) add("buffer \"" + each.name + "\"", each.value);
}

std::optional<Drift> find_drift(group::Group& group, const Parameters& table, Compare compare, void* stream) {
  NamedTensors compared;
  compared.add_values(table);
  const size_t parameters = compared.names.size();
  if (compare == Compare::kAll) compared.add_buffers(table);
  std::optional<Drift> drift = find_drift(group, compared, stream);
  if (!drift) return drift;
  drift->only_buffers = drift->first >= parameters;
  drift->differing = table.indices_at(drift->differing);
  return drift;
}

std::optional<Drift> find_drift(group::Group& group, const NamedTensors& compared, void* stream) {
  if (group.size() == 1) return std::nullopt;
  ByteWriter hashes;
  for (const uint64_t hash : content_hashes(group, compared.tensors, stream)) hashes.number(hash);
  ByteWriter whole;
  whole.number(content_hash(hashes.bytes().data(), hashes.bytes().size()));
  if (bootstrap::all_equal(group.gather("replica check", whole.bytes()))) return std::nullopt;
  std::vector<std::vector<uint64_t>> by_rank;
  for (const std::string& answer : group.gather("replica hashes", hashes.bytes())) {
    ByteReader reader(answer);
    by_rank.emplace_back();
    for (size_t i = 0; i < compared.names.size(); ++i) by_rank.back().push_back(reader.number<uint64_t>());
  }
  return judge(compared.names, by_rank);
}

void throw_drift(const char* function, const Drift& drift) {
  const char* advice = drift.only_buffers ? "only buffers differ; ddp_model_sync_buffers on every rank makes them equal"
                                          : "load a checkpoint on every rank to make them equal";
  throw Error(DDP_ERROR_MISMATCH, std::string(function) + ": the replicas differ: " + drift.text + "; " + advice)
      .with({.ranks = drift.ranks, .parameters = drift.differing});
}

}  // namespace ddp::model
