// SPDX-License-Identifier: Apache-2.0
#include "core/error_bytes.hpp"

#include <algorithm>

namespace ddp {

void write_list(ByteWriter& writer, const std::vector<int32_t>& numbers) {
  const size_t count = std::min(numbers.size(), kListed);
  writer.number(static_cast<uint32_t>(count));
  for (size_t at = 0; at < count; ++at) writer.number(numbers[at]);
}

std::vector<int32_t> read_list(ByteReader& reader) {
  const auto count = reader.number<uint32_t>();
  if (count > kListed) throw Error(DDP_ERROR_INTERNAL, "a message between ranks has a list that is too long");
  std::vector<int32_t> numbers;
  for (uint32_t at = 0; at < count; ++at) numbers.push_back(reader.number<int32_t>());
  return numbers;
}

void write_details(ByteWriter& writer, const Error& error) {
  const ErrorDetails* const details = error.details();
  writer.number(static_cast<uint8_t>(details != nullptr));
  if (details == nullptr) return;
  write_list(writer, details->ranks);
  write_list(writer, details->parameters);
  writer.number(details->call).number(details->other_call).number(details->bytes_expected).number(details->bytes_got);
}

Error read_details(ByteReader& reader, const Error& error) {
  if (reader.number<uint8_t>() == 0) return error;
  ErrorDetails details;
  details.ranks = read_list(reader);
  details.parameters = read_list(reader);
  details.call = reader.number<int32_t>();
  details.other_call = reader.number<int32_t>();
  details.bytes_expected = reader.number<int64_t>();
  details.bytes_got = reader.number<int64_t>();
  return error.with(std::move(details));
}

}  // namespace ddp
