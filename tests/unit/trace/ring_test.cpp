// SPDX-License-Identifier: Apache-2.0
#include "trace/ring.hpp"

#include "support/check.hpp"
#include "support/file_faults.hpp"
#include "trace/ring_news.hpp"

using namespace ddp::trace;

Event event_of(uint32_t number) { return {EventKind::kStep, 3, number, number * 10, number * 10 + 5, 7 * number, 2, 9}; }

Ring read_file(const std::string& path) {
  std::optional<Ring> ring = read_ring(read_whole(path));
  expect(ring.has_value(), "a ring at " + path);
  return *ring;
}

ddp_case(what_is_recorded_comes_back) {
  const TemporaryFolder folder;
  const std::string path = ring_path(folder.path(), 4);
  const auto recorder = Recorder::make(path, {64, 4, 6, "a-host", "a-boot"});
  for (const uint32_t number : {5U, 2U, 9U}) recorder->record(event_of(number));
  recorder->name("p 3 5 encoder.0 weight");
  recorder->name("c 5 ddp_group_broadcast");
  recorder->note_gather({8, 100, 200});
  for (const Ring& ring :
       {read_file(path), *read_ring(recorder->copy(recorder->size())), read_rings(folder.path()).front()}) {
    expect_equal(ring.events.size(), size_t{3}, "events");
    const Event& first = ring.events.front();
    expect(first.number == 2 && first.begin_ns == 20 && first.end_ns == 25 && first.bytes == 14, "the earliest first");
    expect(first.kind == EventKind::kStep && first.model == 3 && first.peer == 2 && first.pass == 9, "all of it");
    expect_equal(ring.parameters.at({3, 5}), "encoder.0 weight", "a parameter");
    expect_equal(ring.calls.at(5), "ddp_group_broadcast", "a call");
    expect_equal(ring.gathers.size(), size_t{1}, "gathers");
    expect_equal(std::string(ring.owner.host) + ring.owner.boot, "a-hosta-boot", "where");
    expect(ring.owner.rank == 4 && ring.owner.size == 6 && ring.owner.pid == getpid(), "who");
    expect(ring.lost == 0 && ring.torn == 0, "nothing is lost");
  }
}

/// Each event that a copy has is one that was recorded, while another thread writes over the slots again and again.
ddp_case(a_copy_of_a_ring_that_is_written_has_whole_events) {
  const TemporaryFolder folder;
  const auto recorder = Recorder::make(folder.file("a.ring"), {64});
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (uint32_t number = 1; !ends; number = number % 1'000'000 + 1) recorder->record(event_of(number));
  });
  size_t whole = 0, mixed = 0;
  for (int copies = 0; copies < 20'000; ++copies) {
    const std::optional<Ring> ring = read_ring(recorder->copy(recorder->size()));
    for (const Event& event : ring->events) {
      const Event wanted = event_of(event.number);
      const bool is_one = event.begin_ns == wanted.begin_ns && event.end_ns == wanted.end_ns && event.bytes == wanted.bytes;
      ++(is_one ? whole : mixed);
    }
  }
  ends = true;
  writer.join();
  expect(whole > 20'000, "there are events: " + std::to_string(whole));
  expect_equal(mixed, size_t{0}, "events of which a part is of another one");
}

ddp_case(times_and_amounts_that_cannot_be_are_torn) {
  const TemporaryFolder folder;
  const auto recorder = Recorder::make(folder.file("a.ring"), {64});
  for (const auto& [begin, end] : {std::pair{INT64_MIN, INT64_MAX}, {int64_t{-1}, int64_t{5}}, {int64_t{5}, INT64_MAX}})
    recorder->record({EventKind::kStep, 0, 0, begin, end});
  for (const int64_t bytes : {int64_t{-1}, INT64_MAX}) recorder->record({EventKind::kMark, 0, 0, 1, 1, bytes});
  recorder->record(event_of(1));
  const Ring ring = read_file(folder.file("a.ring"));
  expect(ring.events.size() == 1 && ring.torn == 5, "one is whole");
}

ddp_case(the_newest_stay) {
  const TemporaryFolder folder;
  const auto recorder = Recorder::make(folder.file("a.ring"), {64});
  for (uint32_t number = 1; number <= 1'000; ++number) recorder->record(event_of(number));
  const Ring ring = read_file(folder.file("a.ring"));
  expect_equal(ring.events.size(), size_t{64}, "events");
  expect_equal(ring.events.front().number, 937U, "the oldest");
  expect_equal(ring.events.back().number, 1'000U, "the newest");
  expect_equal(ring.lost, uint64_t{936}, "lost");
}

ddp_case(events_of_many_threads_are_whole) {
  const TemporaryFolder folder;
  const auto recorder = Recorder::make(folder.file("a.ring"), {128});
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (uint32_t i = 0; i < 20'000; ++i) recorder->record(event_of(thread * 20'000 + i + 1));
    });
  for (std::thread& thread : threads) thread.join();
  const Ring ring = read_file(folder.file("a.ring"));
  expect_equal(ring.torn, uint64_t{0}, "torn");
  expect(ring.events.size() > 64, "events");
  for (const Event& event : ring.events)
    expect(event.begin_ns == event.number * int64_t{10} && event.end_ns == event.begin_ns + 5 &&
               event.bytes == event.number * int64_t{7},
           "no event of two");
}

/// Killed again and again wherever it is: what can be read is whole, and at most one event is torn.
ddp_case(a_kill_tears_one_event_at_most) {
  const TemporaryFolder folder;
  for (int round = 0; round < 20; ++round) {
    const std::string path = folder.file(std::to_string(round) + ".ring");
    const auto recorder = Recorder::make(path, {64});
    const pid_t writer = fork();
    if (writer == 0) {
      const auto own = Recorder::make(path, {64});
      for (uint32_t number = 1;; ++number) own->record(event_of(number));
    }
    for (int look = 0; look < 10'000; ++look) {
      const auto seen = read_ring(read_whole(path));
      if (seen && !seen->events.empty() && seen->owner.pid == writer) break;
      usleep(100);
    }
    usleep(static_cast<useconds_t>(round * 37));
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    const Ring ring = read_file(path);
    expect(ring.torn <= 1 && ring.events.size() >= 63, "torn: " + std::to_string(ring.torn));
    for (const Event& event : ring.events)
      expect(event.end_ns == event.number * int64_t{10} + 5 && event.bytes == event.number * int64_t{7}, "whole");
  }
}

ddp_case(a_slot_that_is_being_written_is_torn) {
  const TemporaryFolder folder;
  const auto recorder = Recorder::make(folder.file("a.ring"), {64});
  recorder->record(event_of(1));
  recorder->record(event_of(2));
  std::string bytes = read_whole(folder.file("a.ring"));
  const size_t second = bytes.size() - 63 * sizeof(Slot);
  bytes[second] = static_cast<char>(bytes[second] - 1);  // its turn is odd again
  const std::optional<Ring> ring = read_ring(bytes);
  expect(ring && ring->events.size() == 1 && ring->torn == 1, "one is left");
}

ddp_case(names_without_room_are_left_out) {
  const TemporaryFolder folder;
  const auto recorder = Recorder::make(folder.file("a.ring"), {64});
  for (int i = 0; i < 10'000; ++i) recorder->name("p 1 " + std::to_string(i) + " " + std::string(60, 'x'));
  const Ring ring = read_file(folder.file("a.ring"));
  expect(ring.parameters.size() > 3'000 && ring.parameters.size() < 10'000, "some of them");
}

ddp_case(bytes_that_are_no_ring_are_refused) {
  const TemporaryFolder folder;
  const auto recorder = Recorder::make(folder.file("a.ring"), {64});
  recorder->record(event_of(1));
  const std::string good = read_whole(folder.file("a.ring"));
  expect(!read_ring("").has_value() && !read_ring(good.substr(0, 1'000)).has_value(), "too short");
  std::string head = good.substr(0, sizeof(RingHead));
  uint64_t seed = 1;
  for (int round = 0; round < 20'000; ++round) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    std::string bad = good;
    bad[seed >> 33 & (sizeof(RingHead) - 1)] = static_cast<char>(seed >> 24);
    const std::optional<Ring> ring = read_ring(bad);
    expect(!ring || ring->events.size() <= 64, "never more than there is");
    if (round > 2'000) break;
  }
}

/// The copy elsewhere is a ring with the same events, whenever it is read, and however often it has gone round.
ddp_case(pieces_make_the_same_ring) {
  const TemporaryFolder here, there;
  const auto recorder = Recorder::make(ring_path(here.path(), 4), {64, 4, 6, "a-host", "a-boot"});
  RingNews news(here.path());
  uint32_t number = 0;
  for (const uint32_t more : {0U, 3U, 0U, 50U, 30U, 500U, 1U}) {
    for (uint32_t i = 0; i < more; ++i) recorder->record(event_of(++number));
    recorder->name("p 3 " + std::to_string(more) + " weight");
    for (Piece& piece : news.take()) {
      piece.file = "host-1-" + piece.file;
      expect(put_piece(there.path(), piece), "it is put");
    }
    const std::vector<Ring> rings = read_rings(there.path());
    expect_equal(rings.size(), size_t{1}, "rings");
    const Ring expected = read_file(recorder->path());
    expect_equal(rings[0].events.size(), expected.events.size(), "events");
    expect_equal(rings[0].events.size(), size_t{std::min(number, 64U)}, "the newest");
    for (size_t i = 0; i < expected.events.size(); ++i)
      expect_equal(rings[0].events[i].number, expected.events[i].number, "in order");
    expect_equal(rings[0].lost + rings[0].torn, uint64_t{number > 64 ? number - 64 : 0}, "lost");
    expect(rings[0].parameters == expected.parameters, "names");
  }
  expect(news.take().empty(), "nothing is new");
}

ddp_case(what_is_no_piece_is_refused) {
  const TemporaryFolder folder;
  for (const Piece& piece : {Piece{"../a.ring", 0, "x"}, Piece{"a", 0, "x"}, Piece{"a.ring", -1, "x"},
                             Piece{"a.ring", int64_t{1} << 40, "x"}, Piece{"a.ring", 0, std::string(kPieceBytes + 1, 'x')}})
    expect(!put_piece(folder.path(), piece), piece.file);
  expect(folder.names().empty(), "nothing is written");
}
