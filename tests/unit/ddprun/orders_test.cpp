// SPDX-License-Identifier: Apache-2.0
// What two ddpruns say to each other, and the files that they carry for ranks that join.
#include "ddprun/orders.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "ddprun/join_files.hpp"
#include "support/check.hpp"
#include "support/cmocka.hpp"

using namespace ddp::ddprun;
using namespace ddp::test;

namespace {

void orders_arrive_as_they_were_given(void**) {
  expect_equal(write_order({Order::Kind::kStart, 2, 5, {3, true}}), std::string("start 2 5 3 1"), "line");
  const auto start = read_order("start 2 5 3 1");
  expect(start.has_value() && start->kind == Order::Kind::kStart && start->first == 2 && start->last == 5, "start");
  expect(start->how.restarts == 3 && start->how.joins, "how");
  const std::string bytes("a\n\0b\xff", 5);
  const auto file = read_order(write_order({Order::Kind::kFile, 0, 0, {}, "join.a b", bytes}));
  expect(file.has_value() && file->name == "join.a b" && file->bytes == bytes, "file");
  const auto empty = read_order(write_order({Order::Kind::kFile, 0, 0, {}, "join", ""}));
  expect(empty.has_value() && empty->bytes.empty(), "an empty file");
  expect(read_order("over").has_value(), "over");
}

void reports_arrive_as_they_were_given(void**) {
  const auto ended = read_report(write_report({Report::Kind::kEnded, 7, 9, 12345}));
  expect(ended.has_value() && ended->rank == 7 && ended->status == 9 && ended->peak_kib == 12345, "end");
  const auto line = read_report(write_report({Report::Kind::kLine, 7, 0, 0, {}, "what \x1b[1m it said"}));
  expect(line.has_value() && line->rank == 7 && line->bytes == "what \x1b[1m it said", "line");
  const auto file = read_report(write_report({Report::Kind::kFile, 0, 0, 0, "join", "record"}));
  expect(file.has_value() && file->name == "join" && file->bytes == "record", "file");
  const auto piece = read_report(write_report({Report::Kind::kPiece, 0, 0, 0, "rank-0-7.ring", std::string(2, '\0'), 48}));
  expect(piece.has_value() && piece->name == "rank-0-7.ring" && piece->bytes == std::string(2, '\0') && piece->offset == 48,
         "piece");
}

void what_is_none_is_refused(void**) {
  for (const char* line :
       {"", "start", "start 1", "start 2 1 0 0", "start -1 1 0 0", "start 0 99999999 0 0", "start 0 1 0 0 x", "file",
        "file x", "file x x61", "file x6 x61", "file x2e2e2f61 x61", "file x2e61 x61", "file 61 61", "over and out", "stop"})
    expect(!read_order(line).has_value(), std::string("order: ") + line);
  for (const char* line : {"", "ended", "ended 1 2", "ended -1 0 0", "ended 1 2 3 4", "line 1", "line 1 xz0", "file x61",
                           "piece x61 x61", "piece x61 -1 x61", "piece x2e2e2f61 0 x61", "start 0 1 0 0"})
    expect(!read_report(line).has_value(), std::string("report: ") + line);
}

void ranks_become_ranges(void**) {
  std::string text;
  for (const auto& [first, last] : ranges_of({7, 1, 0, 2, 9, 10}))
    text += std::to_string(first) + "-" + std::to_string(last) + " ";
  expect_equal(text, std::string("0-2 7-7 9-10 "), "ranges");
  expect(ranges_of({}).empty(), "none");
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text);
  return text;
}

void only_what_ranks_here_have_finished_travels(void**) {
  char folder[] = "/tmp/ddprun-test-XXXXXX";
  expect(mkdtemp(folder) != nullptr, "a folder");
  JoinFiles files(folder);
  const auto look = [&] {
    while (files.due_ms() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return files.changed();
  };
  std::ofstream(std::string(folder) + "/join.12.0123456789abcdef") << "half";
  expect(look().empty(), "a record that is being written");
  std::ofstream(std::string(folder) + "/join") << "one";
  const auto found = look();
  expect(found.size() == 1 && found[0].first == "join" && found[0].second == "one", "a record");
  expect(look().empty(), "once");
  files.put("join", "two");
  files.put("join.group", "three");
  expect_equal(read(std::string(folder) + "/join"), std::string("two"), "what came");
  struct stat about {};
  expect(stat((std::string(folder) + "/join.group").c_str(), &about) == 0 && (about.st_mode & 077) == 0,
         "for this user alone");
  expect(look().empty(), "what came from elsewhere does not go back");
  std::ofstream(std::string(folder) + "/join") << "four";
  expect(look().size() == 1, "a change");
  std::filesystem::remove_all(folder);
  expect(JoinFiles("").changed().empty(), "no folder");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      ddp_test(orders_arrive_as_they_were_given),
      ddp_test(reports_arrive_as_they_were_given),
      ddp_test(what_is_none_is_refused),
      ddp_test(ranks_become_ranges),
      ddp_test(only_what_ranks_here_have_finished_travels),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
