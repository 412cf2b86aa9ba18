// Save: every rank lists what it has and compares; rank 0 hashes and writes; all learn the outcome.
// Tested by ranks/state_test.cpp.
#include <algorithm>

#include "base/hash.hpp"
#include "state/durable.hpp"
#include "state/exchange.hpp"
#include "state/layout.hpp"
#include "state/parts.hpp"
#include "state/state.hpp"

namespace ddp::state {
namespace {

/// The bytes before the data. One pass over the tensors, for their hashes.
std::string make_head_of(const Parts& parts, const Counters& counters, const Manifest& manifest) {
  Header header;
  const std::string prefix = choose_prefix(manifest.items);
  header.metadata = collect_texts(parts, counters);
  header.metadata[kPrefixKey] = prefix;
  header.tensors = file_entries(manifest.items, prefix);
  std::vector<uint64_t> hashes;
  hashes.reserve(manifest.items.size());
  for (const Item& item : manifest.items) hashes.push_back(content_hash(item.tensor.data, static_cast<size_t>(item.tensor.bytes())));
  std::string head = make_head(std::move(header), hashes);
  const int64_t cap = header_cap(parts.model.table());
  if (static_cast<int64_t>(head.size()) - kLengthBytes > cap)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "the checkpoint's header would have %zu bytes, above the limit of %lld; keep the texts "
                     "of ddp_model_set_metadata below 16 MiB in all", head.size(), static_cast<long long>(cap));
  return head;
}

int64_t bytes_of(const std::vector<Item>& items) noexcept {
  int64_t bytes = 0;
  for (const Item& item : items) bytes += item.tensor.bytes();
  return bytes;
}

template <class Write>
void write_in_chunks(const void* data, int64_t bytes, Write&& write) {
  const auto* from = static_cast<const std::byte*>(data);
  for (int64_t at = 0; at < bytes; at += kChunkBytes) write(from + at, std::min(kChunkBytes, bytes - at));
}

template <class Write>
void write_all_parts(const std::string& head, const std::vector<Item>& items, Write&& write) {
  write_in_chunks(head.data(), static_cast<int64_t>(head.size()), write);
  for (const Item& item : items) write_in_chunks(item.tensor.data, item.tensor.bytes(), write);
}

/// `write_out(head, items)` runs on rank 0.
template <class WriteOut>
void save(const char* function, const Parts& parts, const Counters& counters, const std::optional<Error>& refusal,
          WriteOut&& write_out) {
  parts.model.require_no_pass(function);
  Group& group = parts.model.group();
  group.check_idle(function);
  parts.model.require_everybody(function);
  Manifest manifest;
  together(group, function, [&] {
    if (refusal) throw *refusal;
    manifest = list_parts(parts);
  });
  check_same(group, function, manifest);
  together(group, function, [&] {
    if (group.rank() == 0) write_out(make_head_of(parts, counters, manifest), manifest.items);
  });
}

}  // namespace

void save_file(const char* function, const Parts& parts, const Counters& counters, const std::string& path,
               const std::optional<Error>& refusal) {
  save(function, parts, counters, refusal, [&](const std::string& head, const std::vector<Item>& items) {
    DurableFile file(path, static_cast<int64_t>(head.size()) + bytes_of(items));
    write_all_parts(head, items, [&](const void* data, int64_t bytes) { file.write(data, bytes); });
    parts.model.group().check_usable();  // a rank that was replaced while it slept must not replace a newer file
    file.commit();
  });
}

void save_stream(const char* function, const Parts& parts, const Counters& counters, const PushFn& push,
                 const std::optional<Error>& refusal) {
  save(function, parts, counters, refusal, [&](const std::string& head, const std::vector<Item>& items) {
    write_all_parts(head, items, [&](const void* data, int64_t bytes) {
      const int32_t result = push(data, bytes);
      if (result != 0) throw make_error(DDP_ERROR_CALLBACK, "%s: the write callback returned %d", function, result);
    });
  });
}

}  // namespace ddp::state
