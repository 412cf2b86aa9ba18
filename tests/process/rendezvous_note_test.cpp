// SPDX-License-Identifier: Apache-2.0
// Meeting at a file in which an earlier run left its note. Ranks are threads; they still meet over TCP.

#include "control/identity.hpp"
#include "discovery/place.hpp"
#include "support/check.hpp"
#include "support/group_procs.hpp"
#include "support/meeting.hpp"

using ddp::bootstrap::Record;

/// The file where the ranks of a test meet.
struct MeetingFile : Folder {
  std::string file() const { return path() + "/meeting"; }
  std::string place() const { return "file://" + file(); }
  bool is_clean() const { return ::access(file().c_str(), F_OK) != 0; }
};

const std::string kWord(32, 'a');

void leave_record(const MeetingFile& folder, const Record& note) {
  std::ofstream(folder.file()) << ddp::bootstrap::write_record(note);
}

void expect_to_meet(const MeetingFile& folder) {
  run_ranks(3, [&](int rank) {
    const auto control = meet_at(folder.place(), rank, 3);
    const auto all = control->gather("hello", std::to_string(rank), ddp::os::Deadline::in_ms(20'000));
    expect(all == std::vector<std::string>({"0", "1", "2"}), "all are there");
    control->leave();
  });
  expect(folder.is_clean(), "nothing is left behind");
}

ddp_case(an_earlier_note_whose_port_is_closed_is_replaced) {
  const MeetingFile folder;
  leave_record(folder, {"127.0.0.1:" + std::to_string(ddp::test::free_port()), kWord, kWord, "here",
                        ddp::bootstrap::this_member(0).boot_id});
  expect_to_meet(folder);
}

ddp_case(a_note_of_another_boot_is_replaced) {
  const MeetingFile folder;
  leave_record(folder, {"127.0.0.1:1", kWord, kWord, "there", "another boot"});
  expect_to_meet(folder);
}

ddp_case(a_note_that_is_out_of_reach_is_replaced) {
  const MeetingFile folder;
  leave_record(folder, {"198.51.100.1:1", kWord, "", "there", ""});  // no token: an address that may not be used
  expect_to_meet(folder);
}

ddp_case(bytes_that_are_no_note_are_replaced) {
  const MeetingFile folder;
  std::ofstream(folder.file()) << std::string(100'000, '\n');
  expect_to_meet(folder);
}

ddp_case(what_is_wrong_with_the_note_is_said_when_rank_0_never_comes) {
  const MeetingFile folder;
  leave_record(folder, {"127.0.0.1:1", kWord, kWord, "there", "another boot"});
  auto options = quick_options(1, 2);
  options.rendezvous_timeout_ms = 100;
  expect_error(DDP_ERROR_TIMED_OUT, [&] { static_cast<void>(meet_at(folder.place(), options)); },
               {"rank 0 on the host there can be reached from there alone"});
}

ddp_case(groups_with_names_meet_beside_each_other) {
  const MeetingFile folder;
  run_ranks(4, [&](int thread) {
    const int rank = thread / 2;
    const std::string name = thread % 2 == 0 ? "left" : "right";
    const auto control = meet_at(folder.place() + "#" + name, rank, 2);
    const auto all = control->gather("hello", name, ddp::os::Deadline::in_ms(20'000));
    expect_equal(all[static_cast<size_t>(1 - rank)], name, "name");
    control->leave();
  });
}
