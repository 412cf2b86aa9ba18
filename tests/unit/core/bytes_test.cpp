// SPDX-License-Identifier: Apache-2.0
#include "core/bytes.hpp"

#include "support/check.hpp"

ddp_case(what_was_written_is_read_in_order) {
  ByteWriter writer;
  writer.number<int64_t>(-5).text("name").number<uint8_t>(200).number(1.5).text("").number(
      std::numeric_limits<uint32_t>::max());
  const std::string bytes = writer.bytes();
  ByteReader reader(bytes);
  expect_equal(reader.number<int64_t>(), -5, "first");
  expect_equal(reader.text(), std::string_view("name"), "second");
  expect_equal(static_cast<int>(reader.number<uint8_t>()), 200, "third");
  expect_equal(reader.number<double>(), 1.5, "fourth");
  expect_equal(reader.text(), std::string_view(), "fifth");
  expect(!reader.at_end(), "one is left");
  expect_equal(reader.number<uint32_t>(), std::numeric_limits<uint32_t>::max(), "sixth");
  expect(reader.at_end(), "at the end");
}

ddp_case(numbers_are_little_endian_without_padding) {
  ByteWriter writer;
  writer.number<uint8_t>(1).number<uint32_t>(0x04030201u).text("ab");
  expect_equal(writer.bytes(), std::string("\x01\x01\x02\x03\x04\x02\0\0\0ab", 11), "bytes");
}

ddp_case(text_may_hold_any_byte) {
  const std::string text("a\0\xff\n", 4);
  ByteWriter writer;
  writer.text(text);
  const std::string bytes = std::move(writer).bytes();
  expect_equal(ByteReader(bytes).text(), std::string_view(text), "text");
}

ddp_case(every_message_that_is_cut_throws) {
  ByteWriter writer;
  writer.number<int32_t>(7).text("hello").number<int64_t>(9);
  const std::string whole = writer.bytes();
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string cut = whole.substr(0, length);
    expect_error(DDP_ERROR_INTERNAL, [&] {
      ByteReader reader(cut);
      (void)reader.number<int32_t>();
      (void)reader.text();
      (void)reader.number<int64_t>();
    });
  }
}

ddp_case(a_length_that_promises_too_much_throws_before_anything_is_made) {
  ByteWriter writer;
  writer.number(std::numeric_limits<uint32_t>::max());
  const std::string bytes = writer.bytes() + "abc";
  expect_error(DDP_ERROR_INTERNAL, [&] { (void)ByteReader(bytes).text(); });
}

ddp_case(a_reader_that_threw_has_not_moved) {
  const std::string bytes("abc");
  ByteReader reader(bytes);
  expect_error(DDP_ERROR_INTERNAL, [&] { (void)reader.number<int32_t>(); });
  expect_equal(reader.number<char>(), 'a', "next byte");
}
