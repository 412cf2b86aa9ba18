#include "reduce/drift.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "sync/description.hpp"
#include "sync/spread.hpp"

namespace ddp {
namespace {

constexpr const char* kFunction = "ddp_model_end_backward";

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

/// Run the body on this rank; if it fails on any, all throw the same error.
template <class Body>
void together(Group& group, const char* what, Body&& body) {
  std::optional<Error> error;
  try {
    body();
  } catch (const Error& thrown) {
    error = thrown;
  } catch (const std::bad_alloc&) {
    error = Error(DDP_ERROR_OUT_OF_MEMORY, std::string(kFunction) + ": out of memory while replicas were made equal");
  }
  group.agree(what, error ? &*error : nullptr);
}

struct Parts {
  std::vector<Tensor> tensors;
  std::string kinds;  // what all ranks must have alike
};

Parts list(const Table& table, const std::vector<std::shared_ptr<Follower>>& followers) {
  Parts parts;
  for (const Parameter& parameter : table.parameters()) parts.tensors.push_back(parameter.value);
  for (const Buffer& buffer : table.buffers()) parts.tensors.push_back(buffer.value);
  for (const auto& follower : followers) {
    const std::vector<StateTensor> own = follower->is_replicated() ? follower->state_tensors() : std::vector<StateTensor>{};
    parts.kinds += (parts.kinds.empty() ? "" : ", ") + std::string(follower->kind()) + " with " + std::to_string(own.size()) + " tensors";
    for (const StateTensor& each : own) parts.tensors.push_back(each.tensor);
  }
  return parts;
}

void check_alike(Group& group, const std::string& kinds) {
  const std::vector<std::string> all = group.gather("replica parts", kinds.empty() ? "no optimizer" : kinds);
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw make_error(DDP_ERROR_MISMATCH, "%s: the replicas differ and cannot be made equal: rank 0 has %s, rank %zu has %s", kFunction,
                       all[0].c_str(), rank, all[rank].c_str());
}

}  // namespace

void repair(Group& group, const Table& table, const std::vector<std::shared_ptr<Follower>>& followers, const Drift& drift) {
  if (drift.source < 0) throw_drift(kFunction, drift);
  Parts parts;
  together(group, "replica parts", [&] { parts = list(table, followers); });
  check_alike(group, parts.kinds);
  const bool is_odd = std::find(drift.odd.begin(), drift.odd.end(), group.rank()) != drift.odd.end();
  if (is_odd || group.rank() == drift.source)
    log(DDP_LOG_WARNING, "the replicas differed: %s; parameters, buffers and optimizer are sent again from rank %d to %s",
        drift.text.c_str(), drift.source, name_ranks(drift.odd).c_str());
  for (const auto& follower : followers) {
    const std::vector<std::string> all =
        group.gather("replica fields", group.rank() == drift.source ? pack(follower->state_fields()) : std::string());
    together(group, "replica fields", [&] {
      if (is_odd) follower->load_fields(unpack(all[static_cast<size_t>(drift.source)]));
    });
  }
  spread(group, parts.tensors, drift.source);
}

}  // namespace ddp
