// SPDX-License-Identifier: Apache-2.0
// Messages over streams that are lists of bytes in this test, which take and give a few bytes at a time: sizes around every
// limit, all orders of sends and receives, windows that are full, wrong sizes, and waits that end.
#include "exchange/messages/messenger.hpp"

#include "support/check.hpp"
#include "support/ranks.hpp"
#include "support/thread_control.hpp"

using messages::Content;
using messages::kAnySource;
using messages::kEagerBytes;
using messages::Key;
using messages::kWindowBytes;
using messages::RequestPtr;
using messages::Space;

/// The bytes under way between all ranks. A stream holds `room` bytes, and gives at most `step` at a time.
struct Wires {
  Wires(int ranks, size_t room_each, size_t step_each) : room(room_each), step(step_each) {
    streams.resize(static_cast<size_t>(ranks * ranks));
    for (int rank = 0; rank < ranks; ++rank) bells.emplace_back();
  }
  struct OneBell {
    std::atomic<uint32_t> word{0}, sleeping{0};
  };
  size_t room, step;
  std::mutex mutex;  // guards the streams
  std::vector<std::deque<std::byte>> streams;
  std::deque<OneBell> bells;
};

class FakeStreams final : public messages::Streams {
 public:
  FakeStreams(Wires& wires, int ranks, int rank) : wires_(wires), ranks_(ranks), rank_(rank), bell_(bell_of(rank)) {
    for (int other = 0; other < ranks; ++other)
      if (other != rank) others_.push_back(other);
  }
  void open(int32_t) override {}
  size_t write(int32_t peer, messages::Bytes first, messages::Bytes second) override {
    size_t sent = 0;
    {
      const std::lock_guard lock(wires_.mutex);
      auto& stream = wires_.streams[static_cast<size_t>(rank_ * ranks_ + peer)];
      for (const messages::Bytes& part : {first, second})
        for (size_t at = 0; at < part.count && stream.size() < wires_.room; ++at, ++sent) stream.push_back(part.data[at]);
    }
    if (sent > 0) bell_of(peer).ring();
    return sent;
  }
  size_t read(int32_t peer, std::byte* data, size_t count) override {
    size_t got = 0;
    {
      const std::lock_guard lock(wires_.mutex);
      auto& stream = wires_.streams[static_cast<size_t>(peer * ranks_ + rank_)];
      for (; got < std::min(count, wires_.step) && !stream.empty(); ++got) {
        data[got] = stream.front();
        stream.pop_front();
      }
    }
    if (got > 0) bell_of(peer).ring();
    return got;
  }
  const std::vector<int32_t>& sources() override { return others_; }
  bool has_ended(int32_t) override { return false; }
  bool is_on_its_way(int32_t) override { return false; }
  const messages::Bell& bell() const noexcept override { return bell_; }
  bool is_quick() const noexcept override { return false; }
  void open_all(os::Deadline) override {}
  void finish() noexcept override {}

 private:
  messages::Bell bell_of(int32_t rank) {
    auto& one = wires_.bells[static_cast<size_t>(rank)];
    return {one.word, one.sleeping};
  }
  Wires& wires_;
  int ranks_, rank_;
  messages::Bell bell_;
  std::vector<int32_t> others_;
};

/// A rank of the test.
struct Rank {
  ThreadControl control;
  bootstrap::Failure failure;
  messages::Messenger messenger;

  Rank(ThreadHub& hub, Wires& wires, int rank, int64_t timeout_ms)
      : control(hub, rank), messenger(std::make_unique<FakeStreams>(wires, hub.size(), rank), control, failure, timeout_ms) {
    control.on_failure([this](const Error& cause) {
      failure.set(cause);
      messenger.wake();
    });
  }
  void send(int32_t peer, int64_t tag, const std::vector<uint8_t>& data) {
    const RequestPtr request = start_send(peer, tag, data);
    messenger.wait(request);
    if (request->error) throw Error(*request->error);
  }
  RequestPtr start_send(int32_t peer, int64_t tag, const std::vector<uint8_t>& data) {
    return messenger.send(peer, {Space::kProgram, tag}, {DDP_U8, static_cast<int64_t>(data.size())},
                          reinterpret_cast<const std::byte*>(data.data()));
  }
  RequestPtr start_receive(int32_t source, int64_t tag, std::vector<uint8_t>& data) {
    return messenger.receive(source, {Space::kProgram, tag}, {DDP_U8, static_cast<int64_t>(data.size())},
                             reinterpret_cast<std::byte*>(data.data()));
  }
  int32_t receive(int32_t source, int64_t tag, std::vector<uint8_t>& data) {
    const RequestPtr request = start_receive(source, tag, data);
    messenger.wait(request);
    if (request->error) throw Error(*request->error);
    return request->source;
  }
};

std::vector<uint8_t> bytes_of(int from, int64_t tag, size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t at = 0; at < count; ++at)
    bytes[at] = static_cast<uint8_t>(at * 31 + static_cast<size_t>(from) * 7 + static_cast<size_t>(tag));
  return bytes;
}

void run(int size, size_t room, size_t step, const std::function<void(Rank&, int)>& body, int64_t timeout_ms = 20'000) {
  ThreadHub hub(size);
  Wires wires(size, room, step);
  run_ranks(size, [&](int rank) {
    Rank self(hub, wires, rank, timeout_ms);
    body(self, rank);
    if (!self.failure.broken()) static_cast<void>(self.control.gather("end", "", os::Deadline::in_ms(20'000)));
  });
}

const size_t kSizes[] = {0, 1, 31, 4096, size_t{kEagerBytes} - 1, size_t{kEagerBytes}, size_t{kEagerBytes} + 1, 300'000};

ddp_case(every_size_arrives_whole) {
  for (const auto& [room, step] : {std::pair<size_t, size_t>{100, 7}, {1 << 20, 1 << 20}, {4096, 1000}})
    run(2, room, step, [](Rank& self, int rank) {
      for (const size_t size : kSizes) {
        std::vector<uint8_t> data = rank == 0 ? bytes_of(0, 5, size) : std::vector<uint8_t>(size);
        if (rank == 0)
          self.send(1, 5, data);
        else
          expect_equal(self.receive(0, 5, data), 0, "the sender");
        expect(data == bytes_of(0, 5, size), "bytes of " + std::to_string(size));
      }
    });
}

ddp_case(messages_wait_for_their_receives_in_any_order_of_tags) {
  run(2, 5000, 777, [](Rank& self, int rank) {
    std::vector<std::vector<uint8_t>> data;
    std::vector<RequestPtr> requests;
    constexpr int64_t kTags = 9;
    for (int64_t tag = 0; tag < kTags; ++tag)
      data.push_back(rank == 0 ? bytes_of(0, tag, 20'000 * static_cast<size_t>(tag)) : std::vector<uint8_t>());
    if (rank == 0)
      for (int64_t tag = 0; tag < kTags; ++tag) requests.push_back(self.start_send(1, tag, data[static_cast<size_t>(tag)]));
    for (int64_t tag = kTags; rank == 1 && tag-- > 0;) {
      data[static_cast<size_t>(tag)].resize(20'000 * static_cast<size_t>(tag));
      self.receive(0, tag, data[static_cast<size_t>(tag)]);
      expect(data[static_cast<size_t>(tag)] == bytes_of(0, tag, 20'000 * static_cast<size_t>(tag)), "of the tag");
    }
    for (const RequestPtr& request : requests) self.messenger.wait(request);
  });
}

// Small ones and large ones of one tag take different ways, and are received in the order in which they were sent.
ddp_case(one_tag_keeps_its_order) {
  run(2, 1 << 16, 5000, [](Rank& self, int rank) {
    std::vector<std::vector<uint8_t>> sent;
    std::vector<RequestPtr> requests;
    std::mt19937 random(11);
    for (int n = 0; n < 60; ++n) {
      const size_t size = random() % 3 == 0 ? 100'000 : random() % 2000;
      sent.push_back(bytes_of(n, 1, size));
    }
    for (const auto& each : sent)
      if (rank == 0) requests.push_back(self.start_send(1, 1, each));
    for (const auto& each : sent)
      if (rank == 1) {
        std::vector<uint8_t> got(each.size());
        self.receive(0, 1, got);
        expect(got == each, "in order");
      }
    for (const RequestPtr& request : requests) self.messenger.wait(request);
  });
}

ddp_case(a_sender_waits_when_the_window_is_full) {
  run(2, 1 << 20, 1 << 20, [](Rank& self, int rank) {
    constexpr size_t kSize = 1024;
    constexpr int64_t kFit = kWindowBytes / messages::window_cost(kSize);
    static std::atomic<bool> looked{false};
    looked = false;
    if (rank == 0) {
      const std::vector<uint8_t> data = bytes_of(0, 1, kSize);
      std::vector<RequestPtr> requests;
      for (int64_t n = 0; n < kFit; ++n) self.send(1, 1, data);  // rank 1 receives none of them
      const RequestPtr next = self.start_send(1, 1, data);
      messages::Patience patience = self.messenger.patience();
      expect(!self.messenger.wait_for(next, patience, 50), "one more waits");
      looked = true;
      self.messenger.wait(next);
    } else {
      std::vector<uint8_t> data(kSize), nothing(1);
      const RequestPtr none = self.start_receive(0, 2, nothing);  // reads what has come, meanwhile
      messages::Patience patience = self.messenger.patience();
      while (!looked) static_cast<void>(self.messenger.wait_for(none, patience, 5));
      expect(self.messenger.give_up(none), "a receive without a message can be given up");
      for (int64_t n = 0; n <= kFit; ++n) self.receive(0, 1, data);
    }
  });
}

ddp_case(any_source_takes_what_comes) {
  run(4, 4096, 512, [](Rank& self, int rank) {
    constexpr int kEach = 20;
    if (rank > 0) {
      for (int n = 0; n < kEach; ++n) self.send(0, 3, bytes_of(rank, n, 100));
      return;
    }
    int seen[4] = {};
    for (int n = 0; n < 3 * kEach; ++n) {
      std::vector<uint8_t> data(100);
      const int32_t from = self.receive(kAnySource, 3, data);
      expect(data == bytes_of(from, seen[from], 100), "its next message");
      ++seen[from];
    }
    for (int from = 1; from < 4; ++from) expect_equal(seen[from], kEach, "of each rank");
  });
}

ddp_case(one_thread_sends_while_another_receives) {
  run(2, 10'000, 3000, [](Rank& self, int rank) {
    const int32_t other = 1 - rank;
    constexpr int kNumber = 200;
    std::exception_ptr thrown;
    std::thread sender([&] {
      try {
        for (int n = 0; n < kNumber; ++n) self.send(other, 1, bytes_of(rank, n, static_cast<size_t>(n) * 997 % 90'000));
      } catch (...) {
        thrown = std::current_exception();
      }
    });
    for (int n = 0; n < kNumber; ++n) {
      std::vector<uint8_t> data(static_cast<size_t>(n) * 997 % 90'000);
      self.receive(other, 1, data);
      expect(data == bytes_of(other, n, data.size()), "message " + std::to_string(n));
    }
    sender.join();
    if (thrown) std::rethrow_exception(thrown);
  });
}

ddp_case(a_wrong_size_is_said_on_both_sides_and_harms_nothing) {
  for (const size_t size : {size_t{10}, size_t{200'000}})
    run(2, 1 << 20, 1000, [size](Rank& self, int rank) {
      if (rank == 0) {
        const std::vector<uint8_t> data = bytes_of(0, 1, size);
        const RequestPtr request = self.start_send(1, 1, data);
        self.messenger.wait(request);
        if (size > size_t{kEagerBytes}) {
          expect(request->error.has_value(), "the sender of a large one is told");
          expect_equal(request->error->status(), DDP_ERROR_MISMATCH, "status");
          expect_contains(request->error->text(), "this rank sends rank 1 200000 U8 elements with tag 1");
          expect_contains(request->error->text(), "is for 7 U8 elements");
        }
        self.send(1, 1, bytes_of(0, 2, 7));
      } else {
        std::vector<uint8_t> data(7);
        expect_error(DDP_ERROR_MISMATCH, [&] { self.receive(0, 1, data); },
                     {"rank 0 sends " + std::to_string(size) + " U8 elements with tag 1", "is for 7 U8 elements"});
        self.receive(0, 1, data);
        expect(data == bytes_of(0, 2, 7), "the next message is whole");
      }
    });
}

ddp_case(who_did_not_send_is_named_with_the_tag) {
  run(
      2, 1000, 1000,
      [](Rank& self, int rank) {
        if (rank == 1) return self.send(0, 8, bytes_of(1, 8, 4));
        std::vector<uint8_t> data(4);
        expect_error(DDP_ERROR_TIMED_OUT, [&] { self.receive(1, 9, data); },
                     {"rank 1 (host host1", "did not send 4 U8 elements with tag 9", "within 0.2 s",
                      "it has sent what nobody receives: tag 8"});
      },
      200);
}

ddp_case(a_wait_as_long_as_the_limit_of_the_group_breaks_nothing) {
  run(
      2, 1000, 1000,
      [](Rank& self, int rank) {
        if (rank == 1) return;
        for (int turn = 0; turn < 10; ++turn) {
          std::vector<uint8_t> data(4);
          const RequestPtr request = self.start_receive(1, 9, data);
          messages::Patience patience(40);
          expect(!self.messenger.wait_for(request, patience, 40), "its time is over first");
          expect_error(DDP_ERROR_TIMED_OUT, [&] { static_cast<void>(self.messenger.wait_for(request, patience, 40)); },
                       {"did not send 4 U8 elements"});
          expect(self.messenger.give_up(request), "withdrawn");
        }
      },
      40);
}

ddp_case(who_did_not_receive_is_named_with_the_tag) {
  run(
      2, 1000, 1000,
      [](Rank& self, int rank) {
        if (rank == 1) return;
        expect_error(DDP_ERROR_TIMED_OUT, [&] { self.send(1, 9, bytes_of(0, 9, 100'000)); },
                     {"rank 1 (host host1", "did not receive 100000 U8 elements with tag 9"});
      },
      200);
}

ddp_case(a_broken_group_ends_waits_with_its_cause) {
  run(
      3, 1000, 1000,
      [](Rank& self, int rank) {
        if (rank == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
          self.control.abort(Error(DDP_ERROR_ABORTED, "rank 2 has had enough"));
          return;
        }
        std::vector<uint8_t> data(4);
        const auto begin = os::now_ns();
        expect_error(DDP_ERROR_ABORTED, [&] { self.receive(1 - rank, 9, data); }, {"rank 2 has had enough"});
        expect(os::now_ns() - begin < 5'000'000'000, "at once");
      },
      60'000);
}
