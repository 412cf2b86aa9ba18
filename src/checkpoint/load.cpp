// SPDX-License-Identifier: Apache-2.0
// Load: rank 0 verifies the whole file and compares it with the registered tensors; only then do texts and tensors go to all
// ranks.
//
// Every tensor is read twice by rank 0: once for its hash, and once into its place, where the hash is taken again, so that a
// file which changes in between is detected. Tensors are sent from rank 0's own memory, in messages of at most kChunkBytes,
// in the order of the manifest. If rank 0 can not read in the second pass, it follows the protocol with the data that it
// has, so the others neither wait nor differ. A local load is the same without the others. Tested by
// conformance/state_test.cpp, conformance/load_test.cpp and gpu_host/state_test.cpp.
#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "checkpoint/exchange.hpp"
#include "checkpoint/latest.hpp"
#include "checkpoint/parts.hpp"
#include "checkpoint/sharded.hpp"
#include "checkpoint/state.hpp"
#include "checkpoint/verify.hpp"
#include "control/call_state.hpp"
#include "core/bytes.hpp"
#include "core/hash.hpp"
#include "group/membership_log.hpp"
#include "group/recoverable.hpp"
#include "model/coalesced_broadcast.hpp"
#include "model/optimizer_slot.hpp"
#include "model/replicas.hpp"
#include "model/requirements.hpp"
#include "optim/param_groups.hpp"

namespace ddp::checkpoint {
namespace {

/// Those who load together: all ranks, or this one alone.
class Company {
 public:
  Company(group::Group& group, const char* function, bool local) : group_(group), function_(function), local_(local) {}
  [[nodiscard]] bool reads() const noexcept { return local_ || group_.rank() == 0; }
  [[nodiscard]] bool is_local() const noexcept { return local_; }
  [[nodiscard]] group::Group& group() const noexcept { return group_; }

  /// Run the body; if it fails on one, all throw the same error.
  template <class Body>
  void together(Body&& body) const {
    if (!local_) return checkpoint::together(group_, function_, body);
    if (const std::optional<Error> error = try_to(body)) throw with_place(group_, function_, *error);
  }
  [[nodiscard]] std::string share(std::string text) const {
    return local_ ? std::move(text) : share_text(group_, function_, std::move(text));
  }

 private:
  group::Group& group_;
  const char* function_;
  bool local_;
};

/// What the reading rank found, for all.
struct Arrived {
  bool plain = false;
  std::vector<bool> present;  // by item of the manifest
  model::LoadReport report;
  Texts texts;
};

std::string pack(const Picked& picked) {
  const Opened& opened = picked.opened;
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(opened.layout.plain));
  writer.text(picked.path).number(static_cast<uint64_t>(picked.skipped.size()));
  for (const std::string& text : picked.skipped) writer.text(text);
  for (const size_t place : opened.match.places) writer.number(static_cast<uint8_t>(place != Match::kAbsent));
  for (const auto* differences : {&opened.match.missing, &opened.match.unexpected}) {
    writer.number(static_cast<uint64_t>(differences->size()));
    for (const Difference& each : *differences) writer.text(each.name);
  }
  for (const auto& [key, value] : opened.layout.header.metadata)
    if (key != kHashesKey) writer.text(key).text(value);
  return std::move(writer).bytes();
}

Arrived unpack(std::string_view bytes, size_t items) {
  ByteReader reader(bytes);
  Arrived arrived;
  arrived.plain = reader.number<uint8_t>() != 0;
  arrived.report.file = std::string(reader.text());
  for (auto left = reader.number<uint64_t>(); left > 0; --left) arrived.report.skipped.emplace_back(reader.text());
  for (size_t i = 0; i < items; ++i) arrived.present.push_back(reader.number<uint8_t>() != 0);
  for (auto* names : {&arrived.report.missing, &arrived.report.unexpected})
    for (auto left = reader.number<uint64_t>(); left > 0; --left) names->emplace_back(reader.text());
  while (!reader.at_end()) {
    const std::string_view key = reader.text();
    arrived.texts.emplace(key, reader.text());
  }
  return arrived;
}

/// Gives the fields of optimizers and averages; takes them back unless kept.
class Fields {
 public:
  explicit Fields(const Parts& parts) : parts_(parts) {
    for (const model::ReplicaState* const each : parts.optimizers) optimizers_.push_back(each->state_fields());
    if (parts.ema != nullptr) ema_ = parts.ema->state_fields();
    if (parts.outer != nullptr) outer_ = parts.outer->state_fields();
  }
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;
  ~Fields() {
    if (kept_) return;
    (void)try_to([&] { give(optimizers_, ema_, outer_); });
  }
  /// `partial`: counters that the texts lack stay.
  void load(const Texts& texts, bool partial) {
    std::vector<Texts> optimizers;
    for (SavedOptimizer& each : saved_optimizers(texts)) optimizers.push_back(std::move(each.fields));
    optimizers.resize(optimizers_.size());  // a file has as many, or with `partial` none
    Texts ema = with_start(texts, kEmaFieldKey);
    Texts outer = with_start(texts, kOuterFieldKey);
    if (partial) {
      for (size_t k = 0; k < optimizers.size(); ++k) optimizers[k] = optim::merge_fields(optimizers_[k], optimizers[k]);
      ema = optim::merge_fields(ema_, ema);
      outer = optim::merge_fields(outer_, outer);
    }
    give(optimizers, ema, outer);
  }
  void keep() noexcept { kept_ = true; }

 private:
  void give(const std::vector<Texts>& optimizers, const Texts& ema, const Texts& outer) {
    for (size_t k = 0; k < parts_.optimizers.size(); ++k) parts_.optimizers[k].load_fields(optimizers[k]);
    if (parts_.ema != nullptr) parts_.ema->load_fields(ema);
    if (parts_.outer != nullptr) parts_.outer->load_fields(outer);
  }
  const Parts& parts_;
  std::vector<Texts> optimizers_;
  Texts ema_;
  Texts outer_;
  bool kept_ = false;
};

/// The tensors to send: those of the file. On the reading rank each span is read into its place before its message is sent;
/// a tensor of which every rank holds a part is sent chunk by chunk, after the others.
struct Transfer {
  struct Sharded {
    const Item* item;
    size_t place;
  };
  std::vector<Tensor> tensors;
  std::vector<size_t> places;  // of `tensors`, in Opened::places
  std::vector<model::Message> messages;
  std::vector<Sharded> sharded;

  Transfer(const Manifest& manifest, const std::vector<bool>& present) {
    size_t place = 0;
    for (size_t i = 0; i < manifest.items.size(); ++i) {
      if (!present[i]) continue;
      const Item& item = manifest.items[i];
      if (is_sharded(item)) {
        sharded.push_back(Sharded{&item, place++});
        continue;
      }
      tensors.push_back(item.tensor);
      places.push_back(place++);
    }
    messages = model::plan_messages(tensors, kChunkBytes);
  }
};

/// One tensor of which every rank holds a part. On the reading rank `fill(at, place, bytes)` brings each chunk into place
/// first. After this rank's first problem it keeps to the protocol and keeps nothing.
template <class Fill>
void send_sharded(const Company& company, gpu::Transfer& transfer, const Item& item, std::optional<Error>& problem,
                  Fill&& fill) {
  const int64_t total = item.tensor.bytes();
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(kChunkBytes, total)));
  for (int64_t at = 0; at < total; at += kChunkBytes) {
    const int64_t now = std::min(kChunkBytes, total - at);
    fill(at, chunk.data(), now);
    company.group().broadcast(flat_tensor(chunk.data(), DDP_U8, now), 0);
    if (!problem) problem = try_to([&] { keep_part(company.group(), transfer, item, at, now, chunk.data()); });
  }
}

/// The half of the others; returns what went wrong here.
std::optional<Error> receive_all(const Company& company, gpu::Transfer& copies, const Transfer& transfer) {
  std::optional<Error> problem;
  model::CoalescedBroadcast broadcast(company.group(), 0, copies.stream());
  for (const model::Message& message : transfer.messages) broadcast.send(transfer.tensors, message);
  for (const Transfer::Sharded& each : transfer.sharded)
    send_sharded(company, copies, *each.item, problem, [](int64_t, std::byte*, int64_t) {});
  return problem;
}

/// Reads spans in order and compares each tensor's hash at its end. After the first failure it does nothing.
class Filler {
 public:
  Filler(Source& source, const Opened& opened, gpu::Transfer& copies, const Transfer& transfer)
      : source_(source), opened_(opened), copies_(copies), transfer_(transfer) {}
  void fill(const model::Message& message) {
    for (const model::CoalescedPart& span : message) {
      if (error_) return;
      error_ = try_to([&] { fill(span); });
    }
  }
  void fill(const Place& of, int64_t total, int64_t at, std::byte* to, int64_t bytes) {
    if (!error_) error_ = try_to([&] { read(of, total, at, to, bytes); });
  }
  [[nodiscard]] std::optional<Error>& error() noexcept { return error_; }

 private:
  void fill(const model::CoalescedPart& span) {
    const Tensor& tensor = transfer_.tensors[span.tensor];
    const Place& place = opened_.places[transfer_.places[span.tensor]];
    int64_t at = span.offset;
    copies_.write(tensor, span.offset, span.bytes, [&](std::byte* to, int64_t bytes) {
      read(place, tensor.bytes(), at, to, bytes);
      at += bytes;
    });
  }
  void read(const Place& place, int64_t total, int64_t at, std::byte* to, int64_t bytes) {
    if (at == 0) hasher_.emplace();
    source_.read(place.offset + at, to, bytes);
    hasher_->add(to, static_cast<size_t>(bytes));
    if (at + bytes == total && hasher_->value() != place.hash)
      throw Error(DDP_ERROR_IO, source_.name() + " changed while it was read");
  }
  Source& source_;
  const Opened& opened_;
  gpu::Transfer& copies_;
  const Transfer& transfer_;
  std::optional<Hasher> hasher_;
  std::optional<Error> error_;
};

/// The reading rank's half of the transfer; returns what went wrong here, after everything was sent.
std::optional<Error> send_all(const Company& company, Source& source, const Opened& opened, gpu::Transfer& copies,
                              const Transfer& transfer) {
  Filler filler(source, opened, copies, transfer);
  model::CoalescedBroadcast broadcast(company.group(), 0, copies.stream());
  for (const model::Message& message : transfer.messages) {
    filler.fill(message);
    if (!company.is_local()) broadcast.send(transfer.tensors, message);
  }
  for (const Transfer::Sharded& each : transfer.sharded)
    send_sharded(company, copies, *each.item, filler.error(), [&](int64_t at, std::byte* to, int64_t bytes) {
      filler.fill(opened.places[each.place], each.item->tensor.bytes(), at, to, bytes);
    });
  return filler.error();
}

/// Waits for the GPU; throws what went wrong on this rank.
void finish(const Company& company, const gpu::Transfer& copies, std::optional<Error> problem) {
  if (!problem) problem = try_to([&] { copies.finish(); });
  if (!company.is_local() && copies.stream() != nullptr)
    company.group().health().check_usable();  // or what has arrived may be anything
  if (problem) throw Error(problem->status(), problem->text() + "; the model is partly overwritten, so load again");
}

void require_loadable(const Parts& parts, const char* function, bool local) {
  parts.model.require_no_pass(function);
  if (!local) {
    parts.model.group().check_idle(function);
    const bootstrap::CallState::In inside(parts.model.group().calls(), bootstrap::user_call(function), parts.model.number());
    return model::require_everybody(parts.model, function);
  }
  if (parts.model.is_committed())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: the model is committed, and a local load would make the ranks differ; load locally before "
                     "ddp_model_commit, or on all ranks with local = 0",
                     function);
}

/// Master weights that did not come with the values follow them, also those of an optimizer that was not passed.
void follow_values(const Parts& parts, const Manifest& manifest, const Arrived& arrived) {
  constexpr std::string_view kMaster = ".master";
  const Parameters& table = parts.model.table();
  std::map<std::string_view, size_t> indices;
  for (size_t i = 0; i < table.parameters().size(); ++i) indices[table.parameters()[i].name] = i;
  std::vector<bool> loaded(indices.size()), alone;
  for (size_t i = 0; i < manifest.items.size(); ++i)
    if (const auto found = indices.find(manifest.items[i].name);
        manifest.items[i].part == Part::kModel && found != indices.end())
      loaded[found->second] = arrived.present[i];
  alone = loaded;
  for (size_t i = 0; i < manifest.items.size(); ++i) {
    const std::string_view name = manifest.items[i].name;
    if (manifest.items[i].part != Part::kOptimizer || !name.ends_with(kMaster) || !arrived.present[i]) continue;
    if (const auto found = indices.find(name.substr(0, name.size() - kMaster.size())); found != indices.end())
      alone[found->second] = false;
  }
  for (model::ReplicaState* const each : parts.optimizers) each->follow_loaded_values(alone);
  for (const auto& state : parts.model.replicas().kept_equal())
    if (std::find(parts.optimizers.begin(), parts.optimizers.end(), state.get()) == parts.optimizers.end() &&
        state.get() != parts.outer)
      state->follow_loaded_values(loaded);
}

void settle(const Parts& parts, const Manifest& manifest, const Arrived& arrived, LoadMode mode, bool fresh_averages) {
  follow_values(parts, manifest, arrived);
  if (!arrived.plain) parts.model.checkpoint_info().metadata = with_start(arrived.texts, kUserKey);
  if (parts.ema != nullptr && fresh_averages)
    for (size_t i = 0; i < manifest.items.size(); ++i)
      if (manifest.items[i].part == Part::kEma && !arrived.present[i]) parts.ema->begin_at_parameter(manifest.items[i].name);
  parts.model.checkpoint_info().last_load = arrived.report;
  if (!parts.optimizers.empty() && arrived.report.file.has_value() && !arrived.report.file->empty())
    parts.model.values().know_file(*arrived.report.file);
  if (mode.local || mode.partial) parts.model.replicas().set_loaded();
}

/// The steps that a replay must not make: they are in the checkpoint.
void log_steps(group::Group& group, const Parts& parts) {
  group::log_membership(group.control(), group.options(), {group::Formation::kLoaded, 1, common_steps(parts.optimizers)});
}

/// `pick(verify)` runs on the reading rank.
template <class Pick>
Counters load(const char* function, const Parts& parts, const std::optional<Error>& refusal, LoadMode mode, Pick&& pick) {
  require_loadable(parts, function, mode.local);
  const bootstrap::CallState::In inside(mode.local ? nullptr : &parts.model.group().calls(), bootstrap::user_call(function),
                                        parts.model.number());
  const Company company(parts.model.group(), function, mode.local);
  Manifest manifest;
  company.together([&] {
    if (refusal) throw *refusal;
    manifest = list_parts(parts);
    parts.model.values().require_own(function);
    if (mode.partial) manifest.summary += ", partial";
  });
  if (!mode.local) check_same(company.group(), function, manifest);

  std::optional<Picked> picked;
  std::string packed;
  company.together([&] {
    if (!company.reads()) return;
    picked.emplace(pick([&](Source& source, bool only_own) {
      Opened opened;
      const std::optional<Error> error = try_to([&] { opened = verify(source, parts, manifest, mode.partial, only_own); });
      if (error) throw error->retold(error->status(), source.name() + ": " + error->text());
      return opened;
    }));
    packed = pack(*picked);
  });
  packed = company.share(std::move(packed));

  Arrived arrived;
  std::optional<Fields> fields;
  std::optional<Transfer> transfer;
  std::optional<gpu::Transfer> copies;
  const bool fresh_averages = parts.ema != nullptr && parts.ema->update_count() == 0;
  company.together([&] {
    arrived = unpack(packed, manifest.items.size());
    transfer.emplace(manifest, arrived.present);
    copies.emplace(settled_gpu(manifest));
    fields.emplace(parts);
    group::Recoverable::of(parts.model.group()).forget_kept();
    const std::optional<Error> wrong = try_to([&] { fields->load(arrived.texts, mode.partial); });
    if (wrong) throw Error(wrong->status(), "the checkpoint \"" + *arrived.report.file + "\": " + wrong->text());
  });
  fields->keep();
  model::Values::Torn torn = parts.model.values().begin_load(!parts.optimizers.empty());
  const std::optional<Error> problem = company.reads()
                                           ? send_all(company, picked->source, picked->opened, *copies, *transfer)
                                           : receive_all(company, *copies, *transfer);
  company.together([&] { finish(company, *copies, problem); });
  settle(parts, manifest, arrived, mode, fresh_averages);
  const bool whole = arrived.report.missing.empty();
  torn.parameters = torn.parameters && !whole;
  const bool all = !parts.optimizers.empty() && parts.optimizers.size() >= parts.model.optimizer_slot().count();
  torn.optimizer = torn.optimizer && !(whole && all);
  parts.model.values().end_load(torn);
  if (!mode.local) log_steps(company.group(), parts);
  return read_counters(arrived.texts);
}

Picked pick_one(Source source, const std::string& path, const VerifyFn& verify) {
  Opened opened = verify(source, false);
  return {std::move(source), std::move(opened), path, {}};
}

}  // namespace

Counters load_file(const char* function, const Parts& parts, const std::string& path, const std::optional<Error>& refusal,
                   LoadMode mode) {
  return load(function, parts, refusal, mode,
              [&](const VerifyFn& verify) { return pick_one(Source::from_file(path), path, verify); });
}

Counters load_stream(const char* function, const Parts& parts, const PullFn& pull, const std::optional<Error>& refusal,
                     LoadMode mode) {
  return load(function, parts, refusal, mode,
              [&](const VerifyFn& verify) { return pick_one(Source::from_stream(pull), "", verify); });
}

Counters load_latest(const char* function, const Parts& parts, const std::string& folder,
                     const std::optional<Error>& refusal, LoadMode mode) {
  return load(function, parts, refusal, mode, [&](const VerifyFn& verify) { return pick_latest(folder, verify); });
}

}  // namespace ddp::checkpoint
