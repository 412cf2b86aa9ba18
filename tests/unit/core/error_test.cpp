// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"

#include <new>
#include <system_error>

#include "core/error_bytes.hpp"
#include "support/check.hpp"

ddp_case(a_made_error_carries_its_status_and_its_text) {
  const Error error = make_error(DDP_ERROR_MISMATCH, "rank %d has %s", 3, "another shape");
  expect(error.status() == DDP_ERROR_MISMATCH, "status");
  expect_equal(error.text(), std::string("rank 3 has another shape"), "text");
  expect_equal(std::string(error.what()), error.text(), "what()");
}

ddp_case(a_text_that_is_too_long_is_cut) {
  const std::string name(10000, 'n');
  const Error error = make_error(DDP_ERROR_IO, "file %s", name.c_str());
  expect(error.text().size() > 1000 && error.text().size() < 5000, "length " + std::to_string(error.text().size()));
  expect_equal(error.text().substr(0, 8), std::string("file nnn"), "beginning");
}

ddp_case(percent_signs_in_arguments_are_text) {
  expect_equal(make_error(DDP_ERROR_IO, "file %s", "%s%n").text(), std::string("file %s%n"), "text");
}

ddp_case(every_status_has_a_name_of_its_own) {
  std::set<std::string> names;
  for (int status = DDP_OK; status <= DDP_ERROR_DIFFERENT_CALLS; ++status) {
    const std::string name = status_name(static_cast<ddp_status>(status));
    expect(name == "DDP_OK" || name.starts_with("DDP_ERROR_"), name);
    names.insert(name);
  }
  expect_equal(names.size(), size_t{DDP_ERROR_DIFFERENT_CALLS} + 1, "number of names");
  expect_equal(std::string(status_name(static_cast<ddp_status>(-5))), "unknown ddp_status", "name of -5");
}

ddp_case(exactly_the_statuses_5_to_7_and_16_break_a_group) {
  for (int status = DDP_OK; status <= DDP_ERROR_DIFFERENT_CALLS; ++status)
    expect_equal(breaks_group(static_cast<ddp_status>(status)), (status >= 5 && status <= 7) || status == 16,
                 std::to_string(status));
}

ddp_case(what_ran_out_is_out_of_memory) {
  expect_equal(to_error(std::bad_alloc()).status(), DDP_ERROR_OUT_OF_MEMORY, "memory");
  expect_equal(to_error(std::bad_alloc()).text(), std::string("out of memory"), "its text");
  const Error threads = to_error(std::system_error(EAGAIN, std::generic_category()));
  expect_equal(threads.status(), DDP_ERROR_OUT_OF_MEMORY, "threads");
  expect_contains(threads.text(), "no thread could be started");
  expect_contains(threads.text(), "ulimit -u");
  expect_contains(threads.text(), "ulimit -v");
  const Error files = to_error(std::system_error(EMFILE, std::generic_category(), "epoll"));
  expect_equal(files.status(), DDP_ERROR_OUT_OF_MEMORY, "descriptors");
  expect_contains(files.text(), "ulimit -n");
  expect_contains(advice_in(std::string("socket: ") + std::strerror(EMFILE)), "ulimit -n");
  expect_contains(advice_in(std::string("socket: ") + std::strerror(ENFILE)), "fs.file-max");
  expect_equal(std::string(advice_in("socket: no")), std::string(), "words that say nothing of that");
  expect_equal(to_error(std::system_error(EPERM, std::generic_category())).status(), DDP_ERROR_INTERNAL, "another code");
  expect_equal(to_error(std::logic_error("x")).status(), DDP_ERROR_INTERNAL, "another exception");
  expect_equal(to_error(Error(DDP_ERROR_IO, "file")).status(), DDP_ERROR_IO, "an Error stays");
}

ddp_case(a_copy_shares_the_text_and_keeps_what_was_agreed) {
  const Error agreed = Error(DDP_ERROR_IO, std::string(100, 'x')).as_agreed();
  const Error copy(agreed);
  expect(copy.is_agreed() && !Error(DDP_ERROR_IO, "x").is_agreed(), "agreed");
  expect(copy.text().data() == agreed.text().data(), "one text");
  static_assert(noexcept(Error()));
}

ddp_case(details_go_with_an_error) {
  const Error error =
      make_error(DDP_ERROR_MISMATCH, "a").about(4).with({.ranks = {1, 3}, .parameters = {7}, .bytes_got = 5});
  expect(Error(error).details() == error.details(), "a copy shares them");
  const Error other = error.as_agreed().retold(DDP_ERROR_DIFFERENT_CALLS, "b");
  expect(other.status() == DDP_ERROR_DIFFERENT_CALLS && other.text() == "b" && other.culprit() == 4, "told again");
  expect(other.details() != nullptr && *other.details() == *error.details(), "of the same");
  expect(Error().details() == nullptr && make_error(DDP_ERROR_IO, "c").details() == nullptr, "none without");
}

Error sent(const Error& error) {
  ByteWriter writer;
  write_details(writer, error);
  ByteReader reader(writer.bytes());
  const Error received = read_details(reader, Error(error.status(), error.text()));
  expect(reader.at_end(), "all is read");
  return received;
}

ddp_case(details_are_sent) {
  const Error error =
      make_error(DDP_ERROR_MISMATCH, "a")
          .with(
              {.ranks = {1, 3}, .parameters = {}, .call = 5, .other_call = 6, .bytes_expected = 1LL << 40, .bytes_got = 0});
  expect(*sent(error).details() == *error.details(), "as they were");
  expect(sent(Error(DDP_ERROR_IO, "b")).details() == nullptr, "none");
  std::vector<int32_t> many(kListed + 10);
  for (size_t at = 0; at < many.size(); ++at) many[at] = static_cast<int32_t>(at);
  const Error long_one = sent(error.with({.parameters = many}));
  many.resize(kListed);
  expect(long_one.details()->parameters == many, "the first of a long list");
}

ddp_case(a_list_that_is_too_long_is_refused) {
  ByteWriter writer;
  writer.number(uint8_t{1}).number(uint32_t{kListed + 1});
  const auto read = [](std::string_view bytes) {
    ByteReader reader(bytes);
    static_cast<void>(read_details(reader, Error()));
  };
  expect_error(DDP_ERROR_INTERNAL, [&] { read(writer.bytes()); });
  expect_error(DDP_ERROR_INTERNAL, [&] { read(std::string_view("\1\2\0\0\0\0", 6)); });  // two ranks, of which none is there
}
