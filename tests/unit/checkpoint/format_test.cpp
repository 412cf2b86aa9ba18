// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/format.hpp"

#include "support/check.hpp"

using namespace ddp::checkpoint;

/// One tensor of the given field texts in an otherwise good header.
std::string with_tensor(const std::string& fields) { return "{\"w\":{" + fields + "}}"; }

void refused(const std::string& json, const std::string& part) {
  expect_error(DDP_ERROR_IO, [&] { (void)parse_header(json); }, {part});
}

ddp_case(a_good_header_is_understood) {
  const Header header = parse_header(
      R"({"__metadata__":{"a":"1","b":"é"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("s":{"data_offsets":[24,32],"shape":[],"dtype":"I64"},"none":{"dtype":"U8","shape":[0,7],"data_offsets":[32,32]}}   )");
  expect_equal(header.metadata.at("b"), "é", "text b");
  expect_equal(header.tensors.size(), 3U, "tensors");
  expect_equal(header.tensors[0].describe(), "F32 [2, 3]", "the first");
  expect_equal(header.tensors[1].describe(), "I64 []", "the second");
  expect_equal(header.tensors[2].describe(), "U8 [0, 7]", "the third");
  expect_equal(header.data_bytes(), 32, "bytes of data");
}

ddp_case(an_empty_header_is_understood) { expect_equal(parse_header("{}").data_bytes(), 0, "bytes of data"); }

ddp_case(tensors_are_sorted_by_offset) {
  const Header header = parse_header(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})");
  expect_equal(header.tensors[0].name, "a", "the first");
}

ddp_case(text_that_is_not_strict_json_is_refused) {
  refused("", "does not begin with {");
  refused(" {}", "does not begin with {");
  refused("[]", "does not begin with {");
  refused("\xef\xbb\xbf{}", "does not begin with {");
  refused("{}\n", "does not end with }");
  refused("{}x", "does not end with }");
  refused("{}{}", "not valid JSON");
  refused("{\"a\":}", "not valid JSON at byte");
  refused("{,}", "not valid JSON");
  refused(R"({"__metadata__":{"a":"1",}})", "not valid JSON");
  refused("{\"\xff\":{}}", "not valid JSON");
  refused(R"({/*c*/})", "not valid JSON");
  refused(std::string("{\"__metadata__\":{\"a\":\"\0\"}}", 26), "not valid JSON");
}

ddp_case(keys_twice_are_refused) {
  const std::string w = R"("w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  refused("{" + w + "," + w + "}", "the tensor \"w\" twice");
  refused(R"({"__metadata__":{},"__metadata__":{}})", "__metadata__ twice");
  refused(R"({"__metadata__":{"a":"1","a":"1"}})", "the text \"a\" twice");
  refused(with_tensor(R"("dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0])"), "field \"dtype\" twice");
}

ddp_case(metadata_is_texts_only) {
  for (const char* value : {"1", "-1", "1.5", "true", "null", "[]", "{}", "[\"a\"]"})
    refused(std::string("{\"__metadata__\":{\"a\":") + value + "}}", "where it does not belong");
  refused(R"({"__metadata__":"a"})", "a text where it does not belong");
}

ddp_case(tensors_have_their_three_fields_and_no_other) {
  refused(with_tensor(R"("dtype":"U8","shape":[0])"), "lacks its dtype, shape or data_offsets");
  refused(with_tensor(""), "lacks");
  refused(with_tensor(R"("dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1)"), "unknown field \"x\"");
  refused(R"({"w":1})", "a number where it does not belong");
  refused(R"({"w":[]})", "a list where it does not belong");
  refused(with_tensor(R"("dtype":"F99","shape":[0],"data_offsets":[0,0])"), "unknown dtype \"F99\"");
  refused(with_tensor(R"("dtype":1,"shape":[0],"data_offsets":[0,0])"), "a number where it does not belong");
  refused(with_tensor(R"("dtype":"U8","shape":{},"data_offsets":[0,0])"), "an object where it does not belong");
  refused(with_tensor(R"("dtype":"U8","shape":[[0]],"data_offsets":[0,0])"), "a list where it does not belong");
  refused(with_tensor(R"("dtype":"U8","shape":"0","data_offsets":[0,0])"), "a text where it does not belong");
  refused(with_tensor(R"("dtype":"U8","shape":[0],"data_offsets":[0])"), "does not have two offsets");
  refused(with_tensor(R"("dtype":"U8","shape":[0],"data_offsets":[0,0,0])"), "more than two offsets");
  refused(with_tensor(R"("dtype":"U8","shape":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"data_offsets":[0,0])"),
          "more than 16 dimensions");
}

ddp_case(numbers_are_plain_integers) {
  for (const char* number :
       {"-1", "-0", "1.0", "1e2", "01", "+1", "0x1", "18446744073709551616", "9223372036854775808", "1E0"})
    (void)expect_error(DDP_ERROR_IO, [&] {
      (void)parse_header(with_tensor("\"dtype\":\"U8\",\"shape\":[" + std::string(number) + "],\"data_offsets\":[0,1]"));
    });
}

ddp_case(names_have_limits) {
  const std::string rest = R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  (void)parse_header("{\"" + std::string(kMaxNameBytes, 'n') + rest);
  refused("{\"" + std::string(kMaxNameBytes + 1, 'n') + rest, "a name of 1281 bytes");
  refused("{\"a\\u0000b" + rest, "a NUL byte");
}

ddp_case(sizes_are_checked_without_overflow) {
  refused(with_tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "is F32 [2] but has the data [0, 4)");
  refused(with_tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "has the data [4, 0)");
  refused(with_tensor(R"("dtype":"F4","shape":[1],"data_offsets":[0,0])"), "has the data");
  refused(with_tensor(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), "is too large");
  refused(with_tensor(R"("dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,0])"), "is too large");
  (void)parse_header(with_tensor(R"("dtype":"F4","shape":[2],"data_offsets":[0,1])"));
}

ddp_case(data_has_no_hole_and_no_overlap) {
  const auto two = [](int a0, int a1, int b0, int b1) {
    const auto tensor = [](const char* name, int from, int to) {
      return "\"" + std::string(name) + "\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(to - from) +
             "],\"data_offsets\":[" + std::to_string(from) + "," + std::to_string(to) + "]}";
    };
    return "{" + tensor("a", a0, a1) + "," + tensor("b", b0, b1) + "}";
  };
  (void)parse_header(two(0, 4, 4, 6));
  refused(two(0, 4, 5, 6), "begins at 5 instead of 4");
  refused(two(0, 4, 3, 6), "begins at 3 instead of 4");
  refused(two(1, 4, 4, 6), "begins at 1 instead of 0");
  refused(two(0, 4, 0, 4), "begins at 0 instead of 4");
}

ddp_case(nesting_does_not_recurse) {
  refused("{\"a\":" + std::string(1'000'000, '[') + "}", "a list where it does not belong");
  refused("{\"a\":{\"shape\":" + std::string(1'000'000, '[') + "}", "a list where it does not belong");
}

ddp_case(the_length_is_checked_before_it_is_used) {
  const auto bytes = [](uint64_t length) {
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, 8);
    return text;
  };
  expect_equal(parse_length(bytes(1000), 1000), 1000, "length");
  for (const uint64_t length : {uint64_t{1001}, uint64_t{1} << 31, UINT64_MAX, uint64_t{1} << 63})
    expect_error(DDP_ERROR_IO, [&] { (void)parse_length(bytes(length), 1000); }, {"above the limit of 1000"});
  (void)expect_error(DDP_ERROR_IO, [&] { (void)parse_length(bytes(kMaxHeaderBytes + 1), INT64_MAX); });
  (void)expect_error(DDP_ERROR_IO, [&] { (void)parse_length("1234567", 1000); });
}

ddp_case(what_is_written_is_read_again) {
  std::mt19937 random(7);
  const char* const dtypes[] = {"F64", "F32", "F16", "BF16", "I64", "I32", "U8"};
  for (int round = 0; round < 200; ++round) {
    Header header;
    int64_t at = 0;
    for (int i = static_cast<int>(random() % 6); i >= 0; --i) {
      TensorEntry entry;
      entry.name = "t" + std::to_string(i) + std::string(random() % 3, '"') + std::string(random() % 2, '\n') + "é\\";
      entry.dtype = find_dtype(dtypes[random() % 7]);
      int64_t count = 1;
      for (auto rank = random() % 4; rank > 0; --rank) {
        entry.shape.push_back(static_cast<int64_t>(random() % 5));
        count *= entry.shape.back();
      }
      entry.begin = at;
      entry.end = at += count * entry.dtype->bits / 8;
      header.tensors.push_back(entry);
    }
    header.metadata["k\"" + std::to_string(round)] = "v\\\n\t";
    const std::string written = serialize_header(header);
    expect_equal(written.size() % static_cast<size_t>(kDataAlignment), 0U, "alignment of the data");
    expect_equal(static_cast<size_t>(parse_length(written, kMaxHeaderBytes)), written.size() - 8, "length");
    const Header read = parse_header(std::string_view(written).substr(8));
    expect(read.metadata == header.metadata, "texts");
    expect_equal(serialize_header(read).size(), written.size(), "size when written again");
    for (const TensorEntry& entry : header.tensors) {
      const auto found = std::find_if(read.tensors.begin(), read.tensors.end(),
                                      [&](const auto& other) { return other.name == entry.name; });
      expect(found != read.tensors.end() && found->shape == entry.shape && found->dtype == entry.dtype &&
                 found->begin == entry.begin,
             "tensor " + entry.name);
    }
  }
}

ddp_case(a_name_that_is_not_utf8_is_not_written) {
  Header header;
  header.metadata["a"] = "\xff";
  (void)expect_error(DDP_ERROR_INVALID_ARGUMENT, [&] { (void)serialize_header(header); });
  expect(is_utf8("é") && !is_utf8("\xe9") && !is_utf8("\xed\xa0\x80") && !is_utf8("\xc0\x80"), "what is UTF-8");
}
