// SPDX-License-Identifier: Apache-2.0
// Memory runs out inside OpenSSL: that end reports it, and neither end reports changed bytes.
#include <sys/socket.h>

#include "modules/gloo/seal.hpp"
#include "support/check.hpp"
#include "support/scarce.hpp"

using ddp::gloo::Seal;

struct Two {
  int ends[2] = {-1, -1};
  std::unique_ptr<Seal> seals[2];
  Two() {
    expect(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "socket pair");
    Seal::Key key{};
    key.fill(7);
    for (int end : {0, 1})
      seals[end] = std::make_unique<Seal>(ends[end], end == 0 ? Seal::Role::kConnects : Seal::Role::kListens, key);
  }
  ~Two() {
    for (const int end : ends) ::close(end);
  }
};

/// One request of many calls fails.
struct Lack {
  int64_t left;
  template <class Call>
  auto in(const Call& call) {
    scarce::arm({.first = std::max<int64_t>(left, 0)});
    const auto result = call();
    const int error = errno;
    left -= scarce::disarm();
    errno = error;
    return result;
  }
  [[nodiscard]] bool was_met() const { return left <= 0; }
};

bool is_over(Seal::Step step) { return step != Seal::Step::kReads && step != Seal::Step::kWrites; }

/// Of both ends; a request of one end fails.
std::array<Seal::Step, 2> shake(const Two& two, int lacking, Lack& lack) {
  std::array<Seal::Step, 2> steps{Seal::Step::kReads, Seal::Step::kReads};
  for (int turn = 0; turn < 10; ++turn)
    for (const int end : {0, 1}) {
      Seal& seal = *two.seals[end];
      if (is_over(steps[static_cast<size_t>(end)])) continue;
      steps[static_cast<size_t>(end)] = end == lacking ? lack.in([&] { return seal.shake_hands(); }) : seal.shake_hands();
    }
  return steps;
}

ddp_case(a_handshake_that_lacks_memory_ends_at_both_ends) {
  if (!scarce::kRefusesSystem) return;  // a sanitizer has its own malloc
  {                                     // what OpenSSL allocates once
    const Two two;
    Lack nothing{INT64_MAX};
    shake(two, 0, nothing);
  }
  for (const size_t lacking : {0, 1}) {
    int64_t exhausted = 0, request = 1;
    for (Lack lack{request}; request < 5'000; lack.left = ++request) {
      const Two two;
      const auto steps = shake(two, static_cast<int>(lacking), lack);
      if (!lack.was_met()) break;
      // One end alone that takes the link for made would wait for the other.
      expect(steps[lacking] != Seal::Step::kFailed || steps[1 - lacking] != Seal::Step::kDone,
             "request " + std::to_string(request) + ": " + two.seals[lacking]->trouble());
      expect(steps[1 - lacking] == Seal::Step::kDone || steps[lacking] != Seal::Step::kDone, "made by both");
      exhausted += steps[lacking] == Seal::Step::kExhausted ? 1 : 0;
    }
    expect(exhausted > 50 && request < 5'000, std::to_string(exhausted) + " of " + std::to_string(request));
  }
}

ddp_case(data_without_memory_were_changed_by_nobody) {
  if (!scarce::kRefusesSystem) return;
  int64_t exhausted = 0;
  std::vector<char> data(20'000, 'd'), came(20'000);
  const iovec part{data.data(), data.size()};
  for (const size_t lacking : {0, 1}) {  // that sends, that receives
    int64_t request = 1;
    for (Lack lack{request}; request < 1'000; lack.left = ++request) {
      const Two two;
      Lack nothing{INT64_MAX};
      shake(two, 0, nothing);
      const auto send = [&] { return two.seals[0]->write(&part, 1); };
      const auto receive = [&] { return two.seals[1]->read(came.data(), came.size()); };
      for (int turn = 0; turn < 4; ++turn)
        for (const size_t end : {0, 1}) {
          const auto call = [&] { return end == 0 ? send() : receive(); };
          const ssize_t result = end == lacking ? lack.in(call) : call();
          if (result >= 0) continue;
          expect(errno != EPROTO && errno != EIO, "request " + std::to_string(request) + ": " + two.seals[end]->trouble());
          exhausted += errno == ENOMEM ? 1 : 0;
        }
      if (!lack.was_met()) break;
    }
    expect(request < 1'000, "all requests");
  }
  expect(exhausted > 0, "memory ran out");
}
