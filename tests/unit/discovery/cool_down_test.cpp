// SPDX-License-Identifier: Apache-2.0
// Which hosts are kept out, and for how long: ten seconds after the third death, doubled with each further one, ten minutes
// at most; and a host that has been quiet begins anew.
#include "discovery/cool_down.hpp"

#include "support/check.hpp"

using ddp::bootstrap::CoolDown;

constexpr int64_t kSecond = 1'000'000'000, kMinute = 60 * kSecond, kFirstMs = 10'000;

/// How many seconds host b is still kept out; -1: it is not.
int64_t left(const CoolDown& hosts, int64_t now_ns, int64_t first_ms = kFirstMs) {
  for (const CoolDown::Kept& each : hosts.kept_out(first_ms, now_ns))
    if (each.host == "b") return (each.until_ns - now_ns) / kSecond;
  return -1;
}

ddp_case(the_third_death_begins_it) {
  CoolDown hosts;
  expect_equal(left(hosts, 0), int64_t{-1}, "nobody has died");
  hosts.note_deaths({"b"}, kMinute);
  hosts.note_deaths({"b"}, 2 * kMinute);
  expect_equal(left(hosts, 2 * kMinute), int64_t{-1}, "after two");
  hosts.note_deaths({"a", "b"}, 3 * kMinute);
  expect_equal(left(hosts, 3 * kMinute), int64_t{10}, "after three");
  expect_equal(left(hosts, 3 * kMinute + 4 * kSecond), int64_t{6}, "4 s later");
  expect_equal(left(hosts, 3 * kMinute + 10 * kSecond), int64_t{-1}, "it is over");
  expect_equal(left(hosts, 3 * kMinute, 0), int64_t{-1}, "if it is wanted at all");
  expect_equal(hosts.kept_out(kFirstMs, 3 * kMinute).size(), size_t{1}, "the other host has lost one rank");
  expect_equal(hosts.kept_out(kFirstMs, 3 * kMinute).front().deaths, size_t{3}, "deaths");
}

ddp_case(each_further_one_doubles_it_up_to_ten_minutes) {
  CoolDown hosts;
  int64_t wanted = 10;
  for (int death = 1; death <= 12; ++death) {
    hosts.note_deaths({"b"}, death * kSecond);
    if (death < 3) continue;
    expect_equal(left(hosts, death * kSecond), wanted, "after " + std::to_string(death));
    wanted = wanted * 2 > 600 ? 600 : wanted * 2;
  }
  expect_equal(left(hosts, 12 * kSecond, INT64_MAX), int64_t{600}, "whatever is asked for");
}

ddp_case(a_host_that_was_quiet_begins_anew) {
  CoolDown hosts;
  for (int death = 0; death < 4; ++death) hosts.note_deaths({"b"}, death * kSecond);
  hosts.note_deaths({"b"}, 11 * kMinute);
  expect_equal(left(hosts, 11 * kMinute), int64_t{-1}, "the first one of now");
  hosts.note_deaths({"b"}, 15 * kMinute);
  hosts.note_deaths({"b"}, 21 * kMinute);
  expect_equal(left(hosts, 21 * kMinute), int64_t{10}, "three within ten minutes");
  hosts.note_deaths({"b"}, 22 * kMinute);
  expect_equal(left(hosts, 22 * kMinute), int64_t{10}, "three again: the first is too old");
}
