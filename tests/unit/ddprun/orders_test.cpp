// SPDX-License-Identifier: Apache-2.0
// What two ddpruns send to each other, and the files that they carry for ranks that join.
#include "ddprun/orders.hpp"

#include "ddprun/join_files.hpp"
#include "support/check.hpp"

using namespace ddp::ddprun;

const std::string kBytes("a\n\0b\xff", 5);

ddp_case(orders_arrive_as_they_were_given) {
  const std::string line = write_order({Order::Kind::kStart, 2, 5, {3, true}});
  expect_equal(line, std::string(R"({"order":"start","first":2,"last":5,"restarts":3,"joins":true})"), "line");
  const auto start = read_order(line);
  expect(start.has_value() && start->kind == Order::Kind::kStart && start->first == 2 && start->last == 5, "start");
  expect(start->how.restarts == 3 && start->how.joins, "how");
  const auto file = read_order(write_order({Order::Kind::kFile, 0, 0, {}, "join.a b", kBytes}));
  expect(file.has_value() && file->name == "join.a b" && file->bytes == kBytes, "file");
  const auto empty = read_order(write_order({Order::Kind::kFile, 0, 0, {}, "join", ""}));
  expect(empty.has_value() && empty->bytes.empty(), "an empty file");
  Order order{Order::Kind::kSignal};
  order.number = 15;
  const auto signal = read_order(write_order(order));
  expect(signal.has_value() && signal->kind == Order::Kind::kSignal && signal->number == 15, "signal");
  order.kind = Order::Kind::kEnvironment;
  order.assignments = {"A=b\nc=d", "B=", "C=" + kBytes};
  const auto environment = read_order(write_order(order));
  expect(environment.has_value() && environment->assignments == order.assignments, "environment");
  expect(read_order(write_order({})).has_value(), "over");
}

ddp_case(reports_arrive_as_they_were_given) {
  const auto ended = read_report(write_report({Report::Kind::kEnded, 7, 9, 12345}));
  expect(ended.has_value() && ended->rank == 7 && ended->status == 9 && ended->peak_kib == 12345, "end");
  const auto line = read_report(write_report({Report::Kind::kLine, 7, 0, 0, {}, "what \x1b[1m it said"}));
  expect(line.has_value() && line->rank == 7 && line->bytes == "what \x1b[1m it said", "line");
  const auto file = read_report(write_report({Report::Kind::kFile, 0, 0, 0, "join", "record"}));
  expect(file.has_value() && file->name == "join" && file->bytes == "record", "file");
  const auto piece = read_report(write_report({Report::Kind::kPiece, 0, 0, 0, "rank-0-7.ring", kBytes, 48}));
  expect(piece.has_value() && piece->name == "rank-0-7.ring" && piece->bytes == kBytes && piece->offset == 48, "piece");
  Report report{Report::Kind::kLook};
  report.look.ranks.push_back({3, 1, 1000, 8, 1});
  report.look.awaited_ns = {0, 5};
  const auto look = read_report(write_report(report));
  expect(look.has_value() && look->look.ranks.at(0).resident_kib == 1000 && look->look.awaited_ns.at(1) == 5, "look");
}

ddp_case(each_order_and_report_is_one_line) {
  for (const std::string& line : {write_order({Order::Kind::kFile, 0, 0, {}, "join", "a\nb"}),
                                  write_report({Report::Kind::kLine, 7, 0, 0, {}, "a\nb\x1e"})})
    expect(line.find('\n') == std::string::npos && line.find('\x1e') == std::string::npos, line);
}

ddp_case(what_is_none_is_refused) {
  for (const char* line : {"",
                           "start",
                           "{",
                           "[]",
                           "null",
                           "{}",
                           R"({"order":1})",
                           R"({"order":"stop"})",
                           R"({"order":"start"})",
                           R"({"order":"start","first":2,"last":1,"restarts":0,"joins":false})",
                           R"({"order":"start","first":-1,"last":1,"restarts":0,"joins":false})",
                           R"({"order":"start","first":0,"last":99999999,"restarts":0,"joins":false})",
                           R"({"order":"start","first":0,"last":18446744073709551615,"restarts":0,"joins":false})",
                           R"({"order":"start","first":0,"last":1.5,"restarts":0,"joins":false})",
                           R"({"order":"start","first":0,"last":1,"restarts":0,"joins":1})",
                           R"({"order":"start","first":0,"last":1,"restarts":0,"joins":false,"x":0})",
                           R"({"order":"file","name":"x"})",
                           R"({"order":"file","name":"x","bytes":"6"})",
                           R"({"order":"file","name":"x","bytes":"6G"})",
                           R"({"order":"file","name":"../a","bytes":"61"})",
                           R"({"order":"file","name":".a","bytes":"61"})",
                           R"({"order":"file","name":"","bytes":"61"})",
                           R"({"order":"signal","number":65})",
                           R"({"order":"signal","number":-1})",
                           R"({"order":"environment","assignments":[1]})",
                           R"({"order":"environment","assignments":"61"})",
                           R"({"order":"over","out":1})",
                           R"({"order":"over"} x)"})
    expect(!read_order(line).has_value(), std::string("order: ") + line);
  for (const char* line :
       {"", "{}", R"({"report":"ended"})", R"({"report":"ended","rank":-1,"status":0,"peak_kib":0})",
        R"({"report":"ended","rank":99999999999,"status":0,"peak_kib":0})", R"({"report":"line","rank":1})",
        R"({"report":"line","rank":1,"bytes":"z0"})", R"({"report":"file","name":"a"})", R"({"report":"look","look":[]})",
        R"({"report":"look","look":{"ranks":[{}],"awaited_ns":[]}})",
        R"({"report":"look","look":{"ranks":[],"awaited_ns":[-1]}})",
        R"({"report":"piece","name":"a","offset":-1,"bytes":"61"})",
        R"({"report":"piece","name":"../a","offset":0,"bytes":"61"})", R"({"order":"over"})"})
    expect(!read_report(line).has_value(), std::string("report: ") + line);
}

ddp_case(ranks_become_ranges) {
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

ddp_case(only_what_ranks_here_have_finished_travels) {
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
