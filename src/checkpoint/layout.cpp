// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/layout.hpp"

#include <array>
#include <charconv>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace ddp::checkpoint {
namespace {

constexpr size_t kHashDigits = 16;
constexpr std::string_view kZeros = "0000000000000000";
// In JSON text a quote inside a string is escaped, so this can only be the entry itself.
constexpr std::string_view kChecksumText = "\"ddp.checksum\":\"";

Error refused(const std::string& text) { return Error(DDP_ERROR_IO, text); }

/// Where the digits of the checksum are; npos if they are not.
size_t find_checksum(std::string_view head) noexcept {
  const size_t at = head.find(kChecksumText);
  if (at == std::string_view::npos || head.size() - at - kChecksumText.size() < kHashDigits) return std::string_view::npos;
  return at + kChecksumText.size();
}

/// Of the head with `digits` at `at` taken as zeros.
uint64_t checksum_of(std::string_view head, size_t at) {
  Hasher hasher;
  hasher.add(head.data(), at);
  hasher.add(kZeros.data(), kHashDigits);
  hasher.add(head.data() + at + kHashDigits, head.size() - at - kHashDigits);
  return hasher.value();
}

const std::string& required(const Header& header, const char* key) {
  const auto found = header.metadata.find(key);
  if (found == header.metadata.end()) throw refused(std::string("the header lacks the text ") + key + "; it is damaged");
  return found->second;
}

void check_checksum(const Header& header, std::string_view head) {
  uint64_t expected = 0;
  const size_t at = find_checksum(head);
  if (!from_hex(required(header, kChecksumKey), &expected) || at == std::string_view::npos ||
      checksum_of(head, at) != expected)
    throw refused(
        "the header does not match its checksum: it is damaged, or another program wrote it and kept the ddp.* texts");
}

std::vector<uint64_t> read_hashes(const Header& header) {
  const std::string_view text = required(header, kHashesKey);
  std::vector<uint64_t> hashes(header.tensors.size());
  bool good = text.size() == hashes.size() * kHashDigits;
  for (size_t i = 0; good && i < hashes.size(); ++i) good = from_hex(text.substr(i * kHashDigits, kHashDigits), &hashes[i]);
  if (!good) throw refused("the header's tensor hashes do not fit its tensors; it is damaged");
  return hashes;
}

}  // namespace

std::string to_hex(uint64_t value) {
  std::string text(kHashDigits, '0');
  for (size_t i = kHashDigits; i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15U];
  return text;
}

bool from_hex(std::string_view text, uint64_t* value) noexcept {
  if (text.size() != kHashDigits || text.find_first_not_of("0123456789abcdef") != std::string_view::npos) return false;
  return std::from_chars(text.data(), text.data() + text.size(), *value, 16).ec == std::errc{};
}

std::string make_head(Header header, const std::vector<uint64_t>& hashes) {
  std::string text;
  for (const uint64_t hash : hashes) text += to_hex(hash);
  header.metadata[kFormatKey] = kFormatVersion;
  header.metadata[kVersionKey] = DDP_VERSION_STRING;
  header.metadata[kHashesKey] = std::move(text);
  header.metadata[kChecksumKey] = kZeros;
  std::string head = serialize_header(header);
  const size_t at = find_checksum(head);
  head.replace(at, kHashDigits, to_hex(checksum_of(head, at)));
  return head;
}

Layout read_head(std::string_view head) {
  const int64_t length = parse_length(head.substr(0, static_cast<size_t>(kLengthBytes)), kMaxHeaderBytes);
  if (static_cast<int64_t>(head.size()) != kLengthBytes + length) throw refused("the header is cut off");
  Layout layout;
  layout.header = parse_header(head.substr(static_cast<size_t>(kLengthBytes)));
  layout.data_begin = static_cast<int64_t>(head.size());
  layout.file_bytes = layout.data_begin + layout.header.data_bytes();
  const auto& metadata = layout.header.metadata;
  const auto ours = metadata.lower_bound("ddp.");
  layout.plain = ours == metadata.end() || ours->first.compare(0, 4, "ddp.") != 0;
  layout.checked = !layout.plain;
  if (layout.plain) return layout;
  // The version first: another format may define its checksum in another way.
  const std::string& format = required(layout.header, kFormatKey);
  if (format != kFormatVersion && format != kOldFormatVersion)
    throw refused("it has the checkpoint format \"" + format +
                  "\", but this version of libddp (" DDP_VERSION_STRING ") reads formats 1 and 2; update the library");
  layout.checked = required(layout.header, kChecksumKey) != kNoChecksum;
  if (layout.checked) check_checksum(layout.header, head);
  layout.prefix = required(layout.header, kPrefixKey);
  if (layout.checked) layout.hashes = read_hashes(layout.header);
  return layout;
}

}  // namespace ddp::checkpoint
