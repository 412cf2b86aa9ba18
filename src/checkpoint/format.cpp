// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/attempt.hpp"

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

namespace ddp::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::array<FileDtype, 20> kDtypes = {{{"BOOL", 8},    {"U8", 8},   {"I8", 8},      {"F8_E5M2", 8}, {"F8_E4M3", 8},
                                                {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16},
                                                {"U16", 16},    {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},
                                                {"F32", 32},    {"F64", 64}, {"I64", 64},    {"U64", 64},    {"C64", 64}}};

Error refuse(const std::string& text) { return Error(DDP_ERROR_IO, text); }

// For a name from a hostile file: short, and without control characters.
std::string shown(std::string_view name) {
  std::string text = "\"";
  for (const char c : name.substr(0, 80)) text += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  return text + (name.size() > 80 ? "...\"" : "\"");
}

// The header as events of the JSON reader. Where we are is one enum, so nothing deeper than a list in a tensor in the root
// can occur.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(Header& header) : header_(header) {}

  bool null() override { throw misplaced("null"); }
  bool boolean(bool) override { throw misplaced("true or false"); }
  bool number_integer(number_integer_t) override { throw misplaced("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { throw misplaced("a number that is not a plain integer"); }
  bool binary(binary_t&) override { throw misplaced("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) throw misplaced("a number");
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) throw misplaced("a number above 2^63");
    numbers_.push_back(static_cast<int64_t>(value));
    if (numbers_.size() > (place_ == Place::kShape ? kMaxRank : 2))
      throw refuse("the tensor " + shown(name_) +
                   (place_ == Place::kShape ? " has more than 16 dimensions" : " has more than two offsets"));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata && has_key_) {
      header_.metadata.emplace(std::move(key_), std::move(value));
      has_key_ = false;
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") throw misplaced("a text");
    entry_.dtype = find_dtype(value);
    if (entry_.dtype == nullptr) throw refuse("the tensor " + shown(name_) + " has the unknown dtype " + shown(value));
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kRoot;
    } else if (place_ == Place::kRoot) {
      place_ = name_ == kMetadataKey ? Place::kMetadata : Place::kTensor;
      entry_ = TensorEntry{};
      seen_ = {};
    } else {
      throw misplaced("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (value.find('\0') != string_t::npos) throw refuse("the header has a name with a NUL byte");
    switch (place_) {
      case Place::kRoot: return root_key(value);
      case Place::kMetadata: return metadata_key(value);
      default: return tensor_key(value);
    }
  }

  bool end_object() override {
    if (place_ == Place::kTensor) finish_tensor();
    place_ = place_ == Place::kRoot ? Place::kEnd : Place::kRoot;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kTensor || (key_ != "shape" && key_ != "data_offsets")) throw misplaced("a list");
    place_ = key_ == "shape" ? Place::kShape : Place::kOffsets;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kShape) {
      entry_.shape = numbers_;
    } else {
      if (numbers_.size() != 2) throw refuse("the tensor " + shown(name_) + " does not have two offsets");
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    }
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw refuse("the header is not valid JSON at byte " + std::to_string(position + static_cast<size_t>(kLengthBytes)));
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };

  [[nodiscard]] Error misplaced(const char* what) const {
    return refuse(std::string("the header has ") + what + " where it does not belong" +
                  (name_.empty() ? "" : " (at " + shown(name_) + ")"));
  }

  bool root_key(string_t& value) {
    if (value.size() > kMaxNameBytes) throw refuse("the header has a name of " + std::to_string(value.size()) + " bytes");
    if (value == kMetadataKey && std::exchange(has_metadata_, true)) throw refuse("the header has __metadata__ twice");
    name_ = std::move(value);
    return true;
  }

  bool metadata_key(string_t& value) {
    if (header_.metadata.count(value) != 0) throw refuse("the header has the text " + shown(value) + " twice");
    key_ = std::move(value);
    has_key_ = true;
    return true;
  }

  bool tensor_key(string_t& value) {
    constexpr std::array<std::string_view, 3> kKeys = {"dtype", "shape", "data_offsets"};
    const auto found = std::find(kKeys.begin(), kKeys.end(), value);
    if (found == kKeys.end()) throw refuse("the tensor " + shown(name_) + " has the unknown field " + shown(value));
    if (std::exchange(seen_[static_cast<size_t>(found - kKeys.begin())], true))
      throw refuse("the tensor " + shown(name_) + " has the field " + shown(value) + " twice");
    key_ = std::move(value);
    return true;
  }

  void finish_tensor() {
    if (!seen_[0] || !seen_[1] || !seen_[2])
      throw refuse("the tensor " + shown(name_) + " lacks its dtype, shape or data_offsets");
    if (static_cast<int64_t>(header_.tensors.size()) >= kMaxTensors)
      throw refuse("the header has more than a million tensors");
    entry_.name = std::move(name_);
    name_.clear();
    check_size(entry_);
    header_.tensors.push_back(std::move(entry_));
  }

  static void check_size(const TensorEntry& entry) {
    int64_t bits = entry.dtype->bits;
    for (const int64_t extent : entry.shape)
      if (__builtin_mul_overflow(bits, extent, &bits)) throw refuse("the tensor " + shown(entry.name) + " is too large");
    if (entry.end < entry.begin || bits % 8 != 0 || entry.end - entry.begin != bits / 8)
      throw refuse("the tensor " + shown(entry.name) + " is " + entry.describe() + " but has the data [" +
                   std::to_string(entry.begin) + ", " + std::to_string(entry.end) + ")");
  }

  Header& header_;
  Place place_ = Place::kStart;
  bool has_metadata_ = false;
  bool has_key_ = false;  // in __metadata__: a key waits for its text
  std::string name_;      // of the entry in the root
  std::string key_;       // inside that entry
  TensorEntry entry_;
  std::array<bool, 3> seen_{};  // its fields
  std::vector<int64_t> numbers_;
};

void check_names(const std::vector<TensorEntry>& tensors) {
  std::vector<std::string_view> names(tensors.size());
  std::transform(tensors.begin(), tensors.end(), names.begin(),
                 [](const TensorEntry& entry) { return std::string_view(entry.name); });
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) throw refuse("the header has the tensor " + shown(*twice) + " twice");
}

void check_tiling(const std::vector<TensorEntry>& tensors) {
  int64_t at = 0;
  for (const TensorEntry& entry : tensors) {
    if (entry.begin != at)
      throw refuse("the data of the tensor " + shown(entry.name) + " begins at " + std::to_string(entry.begin) +
                   " instead of " + std::to_string(at) + " (a hole or an overlap)");
    at = entry.end;
  }
  if (at > std::numeric_limits<int64_t>::max() - kLengthBytes - kMaxHeaderBytes)
    throw refuse("the header declares too much data");
}

std::string json_text(std::string_view text) {
  std::string json;
  if (try_to<Json::exception>([&] { json = Json(text).dump(); }))
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "a checkpoint holds UTF-8 names and texts only, and this one is not: %s",
                     shown(text).c_str());
  return json;
}

std::string numbers(const std::vector<int64_t>& values, const char* separator) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i > 0 ? separator : "") + std::to_string(values[i]);
  return text + "]";
}

}  // namespace

const FileDtype* find_dtype(std::string_view name) noexcept {
  const auto found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const FileDtype& dtype) { return name == dtype.name; });
  return found == kDtypes.end() ? nullptr : &*found;
}

std::string TensorEntry::describe() const { return std::string(dtype->name) + " " + numbers(shape, ", "); }

int64_t parse_length(std::string_view first_bytes, int64_t cap) {
  if (first_bytes.size() < static_cast<size_t>(kLengthBytes))
    throw refuse("it has " + std::to_string(first_bytes.size()) + " bytes, too few for a safetensors file");
  uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), sizeof length);
  if (length > static_cast<uint64_t>(std::min(cap, kMaxHeaderBytes)))
    throw refuse("the header declares a length of " + std::to_string(length) + " bytes, above the limit of " +
                 std::to_string(cap) + "; it is not a safetensors file of this model");
  return static_cast<int64_t>(length);
}

Header parse_header(std::string_view json) {
  if (json.empty() || json.front() != '{')
    throw refuse("the header does not begin with { at byte 8; it is not a safetensors file");
  const size_t last = json.find_last_not_of(' ');
  if (json[last] != '}') throw refuse("the header does not end with } and spaces");
  Header header;
  HeaderReader reader(header);
  (void)Json::sax_parse(json, &reader);
  auto& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  check_names(tensors);
  check_tiling(tensors);
  return header;
}

std::string serialize_header(const Header& header) {
  std::string json(static_cast<size_t>(kLengthBytes), '\0');
  json += "{\"__metadata__\":{";
  bool first = true;
  for (const auto& [key, value] : header.metadata) {
    json += (std::exchange(first, false) ? "" : ",") + json_text(key) + ":" + json_text(value);
  }
  json += '}';
  for (const TensorEntry& entry : header.tensors) {
    json += "," + json_text(entry.name) + ":{\"dtype\":\"" + entry.dtype->name +
            "\",\"shape\":" + numbers(entry.shape, ",") + ",\"data_offsets\":" + numbers({entry.begin, entry.end}, ",") +
            "}";
  }
  json += '}';
  const auto unit = static_cast<size_t>(kDataAlignment);
  json.resize((json.size() + unit - 1) / unit * unit, ' ');
  const uint64_t length = json.size() - static_cast<uint64_t>(kLengthBytes);
  std::memcpy(json.data(), &length, sizeof length);
  return json;
}

bool is_utf8(std::string_view text) {
  return !try_to<Json::exception>([&] { (void)Json(text).dump(); });
}

}  // namespace ddp::checkpoint
