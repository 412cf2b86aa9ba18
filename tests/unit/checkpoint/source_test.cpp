// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/source.hpp"

#include "support/check.hpp"
#include "support/file_faults.hpp"

using checkpoint::Source;

/// Gives `text` in pieces of `piece` bytes; counts what was taken.
struct Stream {
  std::string text;
  int64_t piece = 3;
  int64_t taken = 0;
  int64_t operator()(void* data, int64_t capacity) {
    const int64_t now = std::min({piece, capacity, static_cast<int64_t>(text.size()) - taken});
    std::copy_n(text.data() + taken, now, static_cast<char*>(data));
    taken += now;
    return now;
  }
};

std::string read(Source& source, int64_t offset, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  source.read(offset, text.data(), bytes);
  return text;
}

ddp_case(a_file_is_read_at_any_offset) {
  const TemporaryFolder folder;
  write_whole(folder.file("a"), "0123456789");
  Source source = Source::from_file(folder.file("a"));
  expect_equal(source.size(5), 10, "size");
  expect_equal(read(source, 7, 3), "789", "the end");
  expect_equal(read(source, 0, 2), "01", "the beginning");
  expect_error(DDP_ERROR_IO, [&] { (void)read(source, 8, 3); }, {"ends before byte 11"});
}

ddp_case(a_stream_is_read_as_a_file) {
  Stream stream{"0123456789"};
  Source source = Source::from_stream(std::ref(stream));
  expect_equal(read(source, 2, 2), "23", "the middle");
  expect_equal(stream.taken, 4, "no more is taken than needed");
  expect_equal(read(source, 0, 3), "012", "the beginning again");
  expect_equal(source.size(100), 10, "size");
  expect_equal(read(source, 9, 1), "9", "the end");
  expect_error(DDP_ERROR_IO, [&] { (void)read(source, 9, 2); }, {"ends before byte 11"});
}

ddp_case(an_endless_stream_is_not_kept) {
  int64_t given = 0;
  Source source = Source::from_stream([&](void*, int64_t capacity) {
    given += capacity;
    return capacity;
  });
  expect(source.size(5'000'000) > 5'000'000, "it is longer");
  expect(given <= 5'000'001, "what was taken: " + std::to_string(given));
}

ddp_case(a_callback_that_fails_is_named) {
  for (const int64_t result : {int64_t{-1}, int64_t{1} << 40}) {
    Source source = Source::from_stream([&](void*, int64_t) { return result; });
    expect_error(DDP_ERROR_CALLBACK, [&] { (void)source.size(10); }, {"returned " + std::to_string(result)});
  }
}

ddp_case(what_is_no_file_is_refused_at_once) {
  const TemporaryFolder folder;
  expect(::mkfifo(folder.file("f").c_str(), 0600) == 0, "mkfifo");
  expect_error(DDP_ERROR_IO, [&] { (void)Source::from_file(folder.file("f")); }, {"pipe"});
  expect_error(DDP_ERROR_IO, [&] { (void)Source::from_file("/dev/zero"); }, {"device"});
  expect_error(DDP_ERROR_IO, [&] { (void)Source::from_file(folder.path()); }, {"Is a directory"});
  expect_error(DDP_ERROR_IO, [&] { (void)Source::from_file(folder.file("none")); }, {"there is no such file"});
}

ddp_case(any_failing_call_is_an_error_and_short_reads_are_not) {
  const TemporaryFolder folder;
  write_whole(folder.file("a"), "0123456789");
  const auto use = [&] {
    Source source = Source::from_file(folder.file("a"));
    return read(source, 0, 10);
  };
  {
    const FileFaults faults({.at = 1, .count = 100, .cut_short = true});
    expect_equal(use(), "0123456789", "with short reads");
  }
  for (int64_t at = 1; at <= 3; ++at) {
    const FileFaults faults({.at = at, .code = EIO});
    expect_error(DDP_ERROR_IO, use, {"Input/output error"});
  }
  const FileFaults faults({.at = 1, .code = EINTR});
  expect_equal(use(), "0123456789", "after EINTR");
}
