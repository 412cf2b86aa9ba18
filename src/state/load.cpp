// Load: rank 0 verifies the whole file and compares it with what is registered; only then do texts and tensors go to all ranks.
//
// Every tensor is read twice by rank 0: once for its hash, and once into its place, where the hash is taken again, so that a file which
// changes in between does not go unnoticed. Tensors travel from rank 0's own memory, in chunks, in the order of the manifest.
// If rank 0 can not read in the second pass, it keeps to the protocol with what it has, so the others neither wait nor differ.
// Tested by ranks/state_test.cpp.
#include <algorithm>
#include <vector>

#include "base/bytes.hpp"
#include "base/hash.hpp"
#include "state/exchange.hpp"
#include "state/layout.hpp"
#include "state/match.hpp"
#include "state/parts.hpp"
#include "state/state.hpp"

namespace ddp::state {
namespace {

/// Where one tensor of the manifest lies in the file, and what it must hash to.
struct Place {
  int64_t offset = 0;
  uint64_t hash = 0;
};

/// A file that is what it says and fits the model. Rank 0 only.
struct Opened {
  Layout layout;
  std::vector<Place> places;  // for each item
};

Layout read_layout(Source& source, int64_t cap) {
  std::string head(static_cast<size_t>(kLengthBytes), '\0');
  if (source.size(kLengthBytes) < kLengthBytes) throw Error(DDP_ERROR_IO, "it is too short for a safetensors file");
  source.read(0, head.data(), kLengthBytes);
  const int64_t length = parse_length(head, cap);
  if (source.size(kLengthBytes + length) < kLengthBytes + length)
    throw Error(DDP_ERROR_IO, "it ends inside its header of " + std::to_string(length) + " bytes; it is truncated");
  head.resize(static_cast<size_t>(kLengthBytes + length));
  source.read(kLengthBytes, head.data() + kLengthBytes, length);
  return read_head(head);
}

void check_length(Source& source, const Layout& layout) {
  const int64_t there = source.size(layout.file_bytes);
  if (there < layout.file_bytes)
    throw make_error(DDP_ERROR_IO, "it is truncated: its header declares %lld bytes, but it has %lld",
                     static_cast<long long>(layout.file_bytes), static_cast<long long>(there));
  if (there > layout.file_bytes)
    throw make_error(DDP_ERROR_IO, "it has more than the %lld bytes that its header declares", static_cast<long long>(layout.file_bytes));
}

uint64_t hash_of(Source& source, int64_t offset, int64_t bytes, std::vector<std::byte>& buffer) {
  Hasher hasher;
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    const int64_t now = std::min(kChunkBytes, bytes - at);
    source.read(offset + at, buffer.data(), now);
    hasher.add(buffer.data(), static_cast<size_t>(now));
  }
  return hasher.value();
}

/// Everything that can be refused is refused here, before anything that was registered is touched.
Opened verify(Source& source, const Parts& parts, const Manifest& manifest) {
  Opened opened;
  opened.layout = read_layout(source, header_cap(parts.model.table()));
  const Layout& layout = opened.layout;
  check_kinds(parts, layout.header.metadata);
  const std::vector<size_t> found = match(manifest.items, layout, parts.optimizer != nullptr, parts.ema != nullptr);
  (void)read_counters(layout.header.metadata);
  check_length(source, layout);
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kChunkBytes, layout.file_bytes)));
  for (const size_t position : found) {
    const TensorEntry& entry = layout.header.tensors[position];
    const int64_t offset = layout.data_begin + entry.begin;
    const uint64_t hash = hash_of(source, offset, entry.bytes(), buffer);
    if (!layout.plain && hash != layout.hashes[position])
      throw Error(DDP_ERROR_IO, "the data of the tensor \"" + entry.name + "\" at byte " + std::to_string(offset) +
                                    " does not match its checksum; it is damaged");
    opened.places.push_back({offset, hash});
  }
  return opened;
}

std::string pack(const Layout& layout) {
  ByteWriter writer;
  writer.number(static_cast<uint8_t>(layout.plain));
  for (const auto& [key, value] : layout.header.metadata)
    if (key != kHashesKey) writer.text(key).text(value);
  return std::move(writer).bytes();
}

struct Arrived {
  bool plain = false;
  Texts texts;
};

Arrived unpack(std::string_view bytes) {
  ByteReader reader(bytes);
  Arrived arrived;
  arrived.plain = reader.number<uint8_t>() != 0;
  while (!reader.at_end()) {
    const std::string_view key = reader.text();
    arrived.texts.emplace(key, reader.text());
  }
  return arrived;
}

/// Gives the fields of optimizer and averages; takes them back unless kept.
class Fields {
 public:
  explicit Fields(const Parts& parts) : parts_(parts) {
    if (parts.optimizer != nullptr) optimizer_ = parts.optimizer->state_fields();
    if (parts.ema != nullptr) ema_ = parts.ema->state_fields();
  }
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;
  ~Fields() {
    if (kept_) return;
    (void)outcome_of([&] { give(optimizer_, ema_); });
  }
  void load(const Texts& texts) { give(with_start(texts, kOptimizerFieldKey), with_start(texts, kEmaFieldKey)); }
  void keep() noexcept { kept_ = true; }

 private:
  void give(const Texts& optimizer, const Texts& ema) {
    if (parts_.optimizer != nullptr) parts_.optimizer->load_fields(optimizer);
    if (parts_.ema != nullptr) parts_.ema->load_fields(ema);
  }
  const Parts& parts_;
  Texts optimizer_;
  Texts ema_;
  bool kept_ = false;
};

/// One tensor to all ranks. On rank 0 `fill(at, bytes)` brings each chunk into place first.
template <class Fill>
void send_tensor(Group& group, const Tensor& tensor, Fill&& fill) {
  const int64_t bytes = tensor.bytes();
  for (int64_t at = 0; at < bytes; at += kChunkBytes) {
    const int64_t now = std::min(kChunkBytes, bytes - at);
    fill(at, now);
    group.broadcast(flat_tensor(tensor.data + at, DDP_U8, now), 0);
  }
}

/// Rank 0's half of the transfer; returns what went wrong with the file, after everything was sent.
std::optional<Error> send_all(Group& group, Source& source, const Opened& opened, const Manifest& manifest) {
  std::optional<Error> error;
  for (size_t i = 0; i < manifest.items.size(); ++i) {
    const Tensor& tensor = manifest.items[i].tensor;
    Hasher hasher;
    send_tensor(group, tensor, [&](int64_t at, int64_t bytes) {
      if (error) return;
      error = outcome_of([&] { source.read(opened.places[i].offset + at, tensor.data + at, bytes); });
      hasher.add(tensor.data + at, static_cast<size_t>(bytes));
    });
    if (!error && hasher.value() != opened.places[i].hash) error = Error(DDP_ERROR_IO, source.name() + " changed while it was read");
  }
  if (error) return Error(error->status(), error->text() + "; the model is partly overwritten, so load again");
  return error;
}

/// `open()` runs on rank 0 and gives the source.
template <class Open>
Counters load(const char* function, const Parts& parts, const std::optional<Error>& refusal, Open&& open) {
  parts.model.require_no_pass(function);
  Group& group = parts.model.group();
  group.check_idle(function);
  const bool reads = group.rank() == 0;
  Manifest manifest;
  together(group, function, [&] {
    if (refusal) throw *refusal;
    manifest = list_parts(parts);
  });
  check_same(group, function, manifest);

  std::optional<Source> source;
  Opened opened;
  std::string packed;
  together(group, function, [&] {
    if (!reads) return;
    source.emplace(open());
    const std::optional<Error> error = outcome_of([&] { opened = verify(*source, parts, manifest); });
    if (error) throw Error(error->status(), source->name() + ": " + error->text());
    packed = pack(opened.layout);
  });
  packed = share_text(group, function, std::move(packed));

  Arrived arrived;
  std::optional<Fields> fields;
  together(group, function, [&] {
    arrived = unpack(packed);
    fields.emplace(parts);
    fields->load(arrived.texts);
  });
  fields->keep();

  std::optional<Error> error;
  if (reads) error = send_all(group, *source, opened, manifest);
  else
    for (const Item& item : manifest.items) send_tensor(group, item.tensor, [](int64_t, int64_t) {});
  together(group, function, [&] {
    if (error) throw *error;
  });
  if (!arrived.plain) parts.model.metadata() = with_start(arrived.texts, kUserKey);
  return read_counters(arrived.texts);
}

}  // namespace

Counters load_file(const char* function, const Parts& parts, const std::string& path, const std::optional<Error>& refusal) {
  return load(function, parts, refusal, [&] { return Source::from_file(path); });
}

Counters load_stream(const char* function, const Parts& parts, const PullFn& pull, const std::optional<Error>& refusal) {
  return load(function, parts, refusal, [&] { return Source::from_stream(pull); });
}

}  // namespace ddp::state
