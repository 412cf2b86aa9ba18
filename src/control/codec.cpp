// SPDX-License-Identifier: Apache-2.0
#include "control/codec.hpp"

#include <algorithm>
#include <cstring>

#include "core/bytes.hpp"
#include "core/error.hpp"

namespace ddp::bootstrap {
namespace {

// Move up to `missing` bytes from the front of `from` to the end of `to`.
void take(std::string& to, size_t missing, std::string_view& from) {
  const size_t count = std::min(missing, from.size());
  to.append(from.substr(0, count));
  from.remove_prefix(count);
}

}  // namespace

const auth::Bytes32& Body::digest() const {
  if (!digest_.has_value()) digest_ = auth::digest(bytes_);
  return *digest_;
}

FrameWriter::Ends FrameWriter::frame(FrameType type, const Body& body) {
  Ends ends;
  ends.head = ByteWriter().number(static_cast<uint32_t>(body.bytes().size())).number(static_cast<uint8_t>(type)).bytes();
  if (key_.has_value()) {
    const auth::Tag tag = auth::tag(*key_, number_++, ends.head, body.digest());
    ends.tail.assign(reinterpret_cast<const char*>(tag.data()), tag.size());
  }
  return ends;
}

bool FrameReader::take_head(std::string_view& bytes) {
  if (head_.size() == kFrameHead) return true;
  take(head_, kFrameHead - head_.size(), bytes);
  if (head_.size() < kFrameHead) return false;
  ByteReader reader(head_);
  length_ = reader.number<uint32_t>();
  const auto type = reader.number<uint8_t>();
  if (type == 0 || type > kLastFrameType) throw make_error(DDP_ERROR_IO, "a frame of the unknown type %u", type);
  if (length_ > limit_) throw make_error(DDP_ERROR_IO, "a frame of %u bytes where %zu are possible", length_, limit_);
  frame_.type = static_cast<FrameType>(type);
  return true;
}

void FrameReader::check_tag() const {
  auth::Tag got{};
  std::memcpy(got.data(), tail_.data(), got.size());
  if (!auth::same(got, auth::tag(*key_, number_, head_, auth::digest(frame_.body))))
    throw Error(DDP_ERROR_IO, "a frame that was changed on its way");
}

std::optional<Frame> FrameReader::read(std::string_view& bytes) {
  if (!take_head(bytes)) return std::nullopt;
  take(frame_.body, length_ - frame_.body.size(), bytes);
  if (frame_.body.size() < length_) return std::nullopt;
  if (key_.has_value()) {
    take(tail_, sizeof(auth::Tag) - tail_.size(), bytes);
    if (tail_.size() < sizeof(auth::Tag)) return std::nullopt;
    check_tag();
    ++number_;
  }
  head_.clear();
  tail_.clear();
  Frame done = std::move(frame_);
  frame_ = Frame();
  return done;
}

}  // namespace ddp::bootstrap
