// SPDX-License-Identifier: Apache-2.0
#include "model/replicate.hpp"

#include <algorithm>

#include "core/bytes.hpp"
#include "core/description.hpp"
#include "core/differing_ranks.hpp"
#include "group/consensus.hpp"
#include "model/coalesced_broadcast.hpp"
#include "os/log.hpp"

namespace ddp::model {
namespace {

std::string pack(const std::map<std::string, std::string>& fields) {
  ByteWriter writer;
  for (const auto& [key, value] : fields) writer.text(key).text(value);
  return std::move(writer).bytes();
}

std::map<std::string, std::string> unpack(std::string_view bytes) {
  std::map<std::string, std::string> fields;
  for (ByteReader reader(bytes); !reader.at_end();) {
    const std::string_view key = reader.text();
    fields.emplace(key, reader.text());
  }
  return fields;
}

/// What all ranks must have alike, as a text; adds the tensors.
std::string list(const std::vector<std::shared_ptr<ReplicaState>>& states, std::vector<Tensor>& tensors) {
  std::string kinds;
  for (const auto& state : states) {
    const std::vector<StateTensor> own = state->is_replicated() ? state->state_tensors() : std::vector<StateTensor>{};
    kinds += (kinds.empty() ? "" : ", ") + std::string(state->kind()) + " with " + std::to_string(own.size()) + " tensors";
    for (const StateTensor& each : own) tensors.push_back(each.tensor);
  }
  return kinds.empty() ? "no optimizer" : kinds;
}

void check_alike(group::Group& group, const char* function, const std::string& kinds) {
  const std::vector<std::string> all = group.gather("replica parts", kinds);
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw make_error(DDP_ERROR_MISMATCH, "%s: the replicas cannot be made equal: rank 0 has %s, rank %zu has %s", function,
                       all[0].c_str(), rank, all[rank].c_str())
          .about(static_cast<int32_t>(rank))
          .with(ranks_that_differ(all.size(), [&](size_t other) { return all[other] != all[0]; }));
}

}  // namespace

std::string settings_of(const ReplicaState& state) { return pack(state.state_fields()); }

void load_settings(ReplicaState& state, std::string_view settings) { state.load_fields(unpack(settings)); }

void replicate(group::Group& group, const char* function, std::vector<Tensor> tensors,
               const std::vector<std::shared_ptr<ReplicaState>>& states, int32_t source, void* stream,
               const std::function<void()>& begin) {
  std::string kinds;
  group::all_or_none(group, "replica parts", [&] { kinds = list(states, tensors); });
  check_alike(group, function, kinds);
  const bool sends = group.rank() == source;
  std::vector<std::string> settings;  // all of them, before any is changed
  settings.reserve(states.size());
  for (const auto& state : states)
    settings.push_back(
        group.gather("replica fields", sends ? settings_of(*state) : std::string())[static_cast<size_t>(source)]);
  if (begin) begin();
  for (size_t i = 0; i < states.size(); ++i)
    group::all_or_none(group, "replica fields", [&] {
      if (!sends) states[i]->load_fields(unpack(settings[i]));
    });
  broadcast_coalesced(group, tensors, source, stream);
}

void repair(group::Group& group, const char* function, const Parameters& table,
            const std::vector<std::shared_ptr<ReplicaState>>& states, const Drift& drift, void* stream) {
  if (drift.source < 0) throw_drift(function, drift);
  std::vector<Tensor> tensors;
  for (const Parameter& parameter : table.parameters()) tensors.push_back(parameter.value);
  for (const Buffer& buffer : table.buffers()) tensors.push_back(buffer.value);
  const bool is_odd = std::find(drift.odd.begin(), drift.odd.end(), group.rank()) != drift.odd.end();
  if (is_odd || group.rank() == drift.source)
    os::log(DDP_LOG_WARNING,
            "the replicas differed: %s; parameters, buffers and optimizer are sent again from rank %d to %s",
            drift.text.c_str(), drift.source, name_ranks(drift.odd).c_str());
  replicate(group, function, std::move(tensors), states, drift.source, stream);
}

}  // namespace ddp::model
