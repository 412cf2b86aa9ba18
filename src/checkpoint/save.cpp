// SPDX-License-Identifier: Apache-2.0
// Save: every rank lists what it has and compares; rank 0 hashes and writes; all learn the outcome. Tensors of which every
// rank has a part are gathered twice, chunk by chunk, once for the hash, which precedes the data, and once for the data. A
// local save is the same without the other ranks. Tested by conformance/state_test.cpp and gpu_host/state_test.cpp.
#include <fcntl.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/durable.hpp"
#include "checkpoint/exchange.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/folder_lock.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/parts.hpp"
#include "checkpoint/sharded.hpp"
#include "checkpoint/state.hpp"
#include "checkpoint/temporary.hpp"
#include "control/call_state.hpp"
#include "core/bytes.hpp"
#include "core/hash.hpp"
#include "group/recoverable.hpp"
#include "model/requirements.hpp"
#include "os/clock.hpp"
#include "os/log.hpp"
#include "trace/watch.hpp"

namespace ddp::checkpoint {
namespace {

/// The bytes before the data.
std::string make_head_of(const Parts& parts, const Counters& counters, const Manifest& manifest,
                         const std::vector<uint64_t>& hashes) {
  Header header;
  const std::string prefix = choose_prefix(manifest.items);
  header.metadata = collect_texts(parts, counters);
  header.metadata[kPrefixKey] = prefix;
  header.tensors = file_entries(manifest.items, prefix);
  std::string head = make_head(std::move(header), hashes);
  const int64_t cap = header_cap(parts.model.table());
  if (static_cast<int64_t>(head.size()) - kLengthBytes > cap)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "the checkpoint's header would have %zu bytes, above the limit of %lld; keep the texts "
                     "of ddp_model_set_metadata below 16 MiB in all",
                     head.size(), static_cast<long long>(cap));
  return head;
}

int64_t bytes_of(const std::vector<Item>& items) noexcept {
  int64_t bytes = 0;
  for (const Item& item : items) bytes += item.tensor.bytes();
  return bytes;
}

/// Does this rank write what `group` saves, or all by itself what it has?
struct Writer {
  group::Group& group;
  bool writes = false;
};

/// see(item, data, bytes) for one tensor after the other, in chunks; on the rank that writes. Every rank takes part where a
/// tensor is sharded, and goes through all chunks whatever happens: after this rank's first problem nothing is seen.
template <class See>
void each_chunk(const Writer& writer, gpu::Transfer& transfer, const std::vector<Item>& items, std::optional<Error>& problem,
                See&& see) {
  const auto attempt = [&](auto&& body) {
    if (!problem) problem = try_to(body);
  };
  std::vector<std::byte> buffer;
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t total = items[i].tensor.bytes();
    const auto show = [&](const std::byte* data, int64_t bytes) { see(i, data, bytes); };
    if (!is_sharded(items[i])) {
      if (writer.writes) attempt([&] { transfer.read(items[i].tensor, 0, total, show); });
      continue;
    }
    for (int64_t at = 0; at < total; at += kChunkBytes) {
      const int64_t bytes = std::min(kChunkBytes, total - at);
      if (static_cast<int64_t>(buffer.size()) < bytes) buffer.resize(static_cast<size_t>(bytes));
      attempt([&] { put_part(writer.group, transfer, items[i], at, bytes, buffer.data()); });
      gather_chunk(writer.group, items[i], at, bytes, buffer.data());
      if (writer.writes) attempt([&] { show(buffer.data(), bytes); });
    }
  }
}

/// One pass over the tensors. Filled on the rank that writes.
std::vector<uint64_t> hashes_of(const Writer& writer, gpu::Transfer& transfer, const std::vector<Item>& items,
                                std::optional<Error>& problem) {
  std::vector<Hasher> hashers(items.size());
  each_chunk(writer, transfer, items, problem, [&](size_t item, const std::byte* data, int64_t bytes) {
    hashers[item].add(data, static_cast<size_t>(bytes));
  });
  std::vector<uint64_t> hashes;
  hashes.reserve(hashers.size());
  for (const Hasher& hasher : hashers) hashes.push_back(hasher.value());
  return hashes;
}

/// Where a checkpoint goes; on rank 0 alone.
struct Output {
  std::function<void(const void* data, int64_t bytes)> write;
  std::string path{};                   // of a file; else ""
  std::unique_ptr<DurableFile> file{};  // that becomes it
  std::function<void()> commit{};       // all is written and synced: the file gets its name
};

void write_head(const Output& output, const std::string& head) {
  for (size_t at = 0; at < head.size(); at += static_cast<size_t>(kChunkBytes))
    output.write(head.data() + at, std::min(kChunkBytes, static_cast<int64_t>(head.size() - at)));
}

/// Of rank 0, before it opens a file: a save before this one may have ended without it, on a rank that was replaced while it
/// slept. That rank's file goes, so that it cannot take the place of a newer one when the rank wakes.
void remove_unfinished(model::SaveInfo& saves) {
  if (!saves.unfinished.empty() && os::file_table().unlink(AT_FDCWD, saves.unfinished.c_str()) == 0)
    os::log(DDP_LOG_INFO, "removed \"%s\" of a rank that did not end its save", saves.unfinished.c_str());
  saves.unfinished.clear();
}

/// Every rank learns which file rank 0 is about to commit. Since all ranks have answered then, none of them has continued
/// without rank 0. Returns the file.
std::string announce(group::Group& group, model::SaveInfo& saves, const std::optional<Output>& output) {
  ByteWriter mine;
  mine.text(output && output->file ? output->file->temporary_path() : std::string()).text(saves.job);
  mine.text(output ? output->path : std::string());
  const std::vector<std::string> all = group.gather("checkpoint file", mine.bytes());
  ByteReader first(all[0]);
  saves.unfinished = first.text();
  saves.job = first.text();
  return std::string(first.text());
}

/// `open(bytes)` makes the output, on rank 0. All ranks go through all chunks, whatever happens to the output.
template <class Open>
void save(const char* function, const Parts& parts, const Counters& counters, const std::optional<Error>& refusal,
          Open&& open) {
  parts.model.require_no_pass(function);
  group::Group& group = parts.model.group();
  group.check_idle(function);
  const bootstrap::CallState::In inside(group.calls(), bootstrap::user_call(function), parts.model.number());
  model::require_everybody(parts.model, function);
  const int64_t begin_ns = os::now_ns();
  const Writer writer{group, group.rank() == 0};
  model::SaveInfo& saves = parts.model.checkpoint_info().saves;
  Manifest manifest;
  std::optional<gpu::Transfer> transfer;
  together(group, function, [&] {
    if (refusal) throw *refusal;
    parts.model.values().require_whole(function);
    manifest = list_parts(parts);
    transfer.emplace(settled_gpu(manifest));
  });
  check_same(group, function, manifest);
  std::optional<Error> problem;
  const std::vector<uint64_t> hashes = hashes_of(writer, *transfer, manifest.items, problem);
  std::optional<Output> output;
  together(group, function, [&] {
    if (problem) throw *problem;
    if (!writer.writes) return;
    remove_unfinished(saves);
    const std::string head = make_head_of(parts, counters, manifest, hashes);
    output = open(static_cast<int64_t>(head.size()) + bytes_of(manifest.items));
    problem = try_to([&] { write_head(*output, head); });
  });
  each_chunk(writer, *transfer, manifest.items, problem,
             [&](size_t, const std::byte* data, int64_t bytes) { output->write(data, bytes); });
  together(group, function, [&] {
    if (problem) {
      output.reset();  // removed before the other ranks get the error
      throw *problem;
    }
    if (writer.writes && output->file) output->file->sync();
  });
  const std::string path = announce(group, saves, output);
  together(group, function, [&] {
    const std::optional<Output> closing = std::exchange(output, std::nullopt);  // as above
    if (writer.writes && closing->commit) closing->commit();
  });
  saves.unfinished.clear();
  if (trace::Watch* const watch = group.calls().watch()) watch->end_save(begin_ns);
  if (!parts.optimizers.empty() && !path.empty()) parts.model.values().know_file(path);
}

Output file_output(group::Group& group, const std::string& path, int64_t bytes) {
  auto file = std::make_unique<DurableFile>(path, bytes);
  DurableFile* const to = file.get();
  return {[to](const void* data, int64_t count) { to->write(data, count); }, path, std::move(file),
          [&group, to] {
            group.health().check_usable();  // a rank that was replaced while it slept must not replace a newer file
            to->commit();
          }};
}

/// On the rank that writes.
void lock_folder(group::Group& group, model::SaveInfo& saves, const std::string& folder) {
  if (saves.job.empty()) saves.job = random_digits();
  if (saves.lock == nullptr || !saves.lock->is_of(folder)) {
    saves.lock.reset();
    saves.lock = std::make_shared<FolderLock>(folder);
  }
  saves.lock->claim({saves.job, group.name_of(group.rank()), group::Recoverable::of(group).generation()});
}

Output stream_output(const char* function, const PushFn& push) {
  return {[function, &push](const void* data, int64_t bytes) {
    const int32_t result = push(data, bytes);
    if (result != 0) throw make_error(DDP_ERROR_CALLBACK, "%s: the write callback returned %d", function, result);
  }};
}

/// Throws INVALID_STATE if this rank has a part of a tensor alone.
void require_all_here(const char* function, const group::Group& group, const Manifest& manifest) {
  const auto found = std::find_if(manifest.items.begin(), manifest.items.end(), is_sharded);
  if (group.size() > 1 && found != manifest.items.end())
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: each rank has a part of \"%s\" (the optimizer was made with shard = 1), so all ranks save "
                     "together: ddp_state_save or ddp_state_save_file",
                     function, found->name.c_str());
}

}  // namespace

void save_local(const char* function, const Parts& parts, const Counters& counters, const PushFn& push) {
  parts.model.require_no_pass(function);
  parts.model.values().require_whole(function);
  const Manifest manifest = list_parts(parts);
  require_all_here(function, parts.model.group(), manifest);
  gpu::Transfer transfer(settled_gpu(manifest));
  const Writer writer{parts.model.group(), true};
  std::optional<Error> problem;
  const std::vector<uint64_t> hashes = hashes_of(writer, transfer, manifest.items, problem);
  if (problem) throw *problem;
  const Output output = stream_output(function, push);
  write_head(output, make_head_of(parts, counters, manifest, hashes));
  each_chunk(writer, transfer, manifest.items, problem,
             [&](size_t, const std::byte* data, int64_t bytes) { output.write(data, bytes); });
  if (problem) throw *problem;
}

void save_file(const char* function, const Parts& parts, const Counters& counters, const std::string& path,
               const std::optional<Error>& refusal) {
  save(function, parts, counters, refusal, [&](int64_t bytes) { return file_output(parts.model.group(), path, bytes); });
}

void save_latest(const char* function, const Parts& parts, const Counters& counters, const std::string& folder, int64_t keep,
                 const std::optional<Error>& refusal) {
  group::Group& group = parts.model.group();
  save(function, parts, counters, refusal, [&](int64_t bytes) {
    lock_folder(group, parts.model.checkpoint_info().saves, folder);
    Output output = file_output(group, path_in(folder, name_of_step(counters.step)), bytes);
    output.commit = [&, to_its_name = std::move(output.commit)] {
      to_its_name();
      prune(folder, counters.step, keep);
    };
    return output;
  });
}

void save_stream(const char* function, const Parts& parts, const Counters& counters, const PushFn& push,
                 const std::optional<Error>& refusal) {
  save(function, parts, counters, refusal, [&](int64_t) { return stream_output(function, push); });
}

}  // namespace ddp::checkpoint
