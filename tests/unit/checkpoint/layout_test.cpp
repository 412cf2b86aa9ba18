// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/layout.hpp"

#include "support/check.hpp"

using namespace ddp::checkpoint;

std::string example() {
  Header header;
  header.metadata = {{kPrefixKey, "ddp:"}, {"ddp.epoch", "3"}, {"user.note", "\"ddp.checksum\":\"0000000000000000\""}};
  TensorEntry entry;
  entry.name = "w";
  entry.dtype = find_dtype("F32");
  entry.shape = {2};
  entry.end = 8;
  header.tensors.push_back(entry);
  return make_head(header, {0x0123456789abcdefULL});
}

ddp_case(a_head_is_read_as_it_was_made) {
  const std::string head = example();
  const Layout layout = read_head(head);
  expect(!layout.plain, "it is one of libddp");
  expect_equal(layout.prefix, "ddp:", "prefix");
  expect_equal(layout.hashes.at(0), 0x0123456789abcdefULL, "hash");
  expect_equal(layout.header.metadata.at("ddp.epoch"), "3", "epoch");
  expect_equal(layout.header.metadata.at("user.note"), "\"ddp.checksum\":\"0000000000000000\"", "the user's text");
  expect_equal(static_cast<size_t>(layout.data_begin), head.size(), "where the data begins");
  expect_equal(layout.file_bytes, layout.data_begin + 8, "size of the file");
}

ddp_case(the_same_content_gives_the_same_bytes) { expect(example() == example(), "two heads"); }

ddp_case(any_flipped_bit_is_found) {
  const std::string head = example();
  for (size_t bit = 0; bit < head.size() * 8; ++bit) {
    std::string damaged = head;
    damaged[bit / 8] = static_cast<char>(static_cast<unsigned char>(damaged[bit / 8]) ^ (1U << bit % 8));
    try {
      (void)read_head(damaged);
    } catch (const Error& error) {
      expect_equal(static_cast<int>(error.status()), static_cast<int>(DDP_ERROR_IO), "status");
      continue;
    }
    expect(false, "bit " + std::to_string(bit) + " was noticed");
  }
}

ddp_case(any_changed_byte_is_found) {
  const std::string head = example();
  std::mt19937 random(11);
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = head;
    for (auto count = random() % 4 + 1; count > 0; --count) damaged[random() % damaged.size()] = static_cast<char>(random());
    if (damaged == head) continue;
    (void)expect_error(DDP_ERROR_IO, [&] { (void)read_head(damaged); });
  }
}

ddp_case(any_cut_is_found) {
  const std::string head = example();
  for (size_t size = 0; size < head.size(); ++size)
    (void)expect_error(DDP_ERROR_IO, [&] { (void)read_head(std::string_view(head).substr(0, size)); });
}

ddp_case(a_file_of_another_program_is_plain) {
  Header header;
  header.metadata = {{"format", "pt"}, {"user.key", "not ours"}};
  const Layout layout = read_head(serialize_header(header));
  expect(layout.plain && layout.prefix.empty() && layout.hashes.empty(), "plain");
}

ddp_case(a_newer_format_is_refused_with_the_remedy) {
  Header header;
  header.metadata = {{kFormatKey, "3"}};
  expect_error(DDP_ERROR_IO, [&] { (void)read_head(serialize_header(header)); }, {"update the library"});
}

ddp_case(texts_of_libddp_without_their_checksum_are_refused) {
  Header header;
  header.metadata = {{kFormatKey, "1"}, {kPrefixKey, "ddp:"}};
  expect_error(DDP_ERROR_IO, [&] { (void)read_head(serialize_header(header)); }, {"lacks the text ddp.checksum"});
  header.metadata = {{"ddp.epoch", "1"}};
  expect_error(DDP_ERROR_IO, [&] { (void)read_head(serialize_header(header)); }, {"lacks the text ddp.format"});
}

ddp_case(a_file_that_declares_no_checksum_is_read_unchecked) {
  Header header;
  header.metadata = {{kFormatKey, "1"}, {kPrefixKey, "ddp:"}, {kChecksumKey, kNoChecksum}};
  const Layout layout = read_head(serialize_header(header));
  expect(!layout.plain && !layout.checked && layout.prefix == "ddp:" && layout.hashes.empty(), "unchecked");
  header.metadata[kChecksumKey] = "nine";
  expect_error(DDP_ERROR_IO, [&] { (void)read_head(serialize_header(header)); }, {"does not match its checksum"});
  expect(read_head(example()).checked, "a file of libddp is checked");
}

ddp_case(hexadecimal_numbers_are_strict) {
  uint64_t value = 0;
  expect_equal(to_hex(0xabcULL), "0000000000000abc", "text");
  expect(from_hex("0000000000000abc", &value) && value == 0xabcU, "and back");
  for (const char* text :
       {"", "0000000000000ABC", "000000000000abc", "0x00000000000abc", "-000000000000abc", " 000000000000abc"})
    expect(!from_hex(text, &value), text);
}
