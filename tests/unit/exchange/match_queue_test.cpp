// SPDX-License-Identifier: Apache-2.0
// Which message is for which receive: by sender, kind and tag, in the order in which they came and were posted; compared
// with a list that is searched naively.
#include "exchange/messages/match_queue.hpp"

#include <list>

#include "support/check.hpp"

using messages::ArrivedPtr;
using messages::kAnySource;
using messages::Key;
using messages::MatchQueue;
using messages::RequestPtr;
using messages::Space;

RequestPtr receive(int32_t source, const Key& key) {
  auto made = std::make_shared<messages::Request>();
  made->peer = source;
  made->key = key;
  return made;
}

ArrivedPtr message(int32_t source, const Key& key) {
  auto made = std::make_shared<messages::Arrived>();
  made->source = source;
  made->key = key;
  return made;
}

ddp_case(a_message_is_for_the_first_receive_that_fits) {
  MatchQueue queue;
  const RequestPtr other_tag = receive(1, {Space::kProgram, 4}), other_rank = receive(2, {Space::kProgram, 3}),
                   any = receive(kAnySource, {Space::kProgram, 3}), exact = receive(1, {Space::kProgram, 3});
  for (const RequestPtr& each : {other_tag, other_rank, any, exact}) queue.post(each);
  expect(queue.claim(1, {Space::kCollective, 3}) == nullptr, "a message of a collective call is for no receive");
  expect(queue.claim(1, {Space::kProgram, 3}) == any, "the receive of any rank was posted first");
  expect(queue.claim(1, {Space::kProgram, 3}) == exact, "then the other one");
  expect(queue.claim(1, {Space::kProgram, 3}) == nullptr, "each receive gets one message");
  expect(queue.claim(2, {Space::kProgram, 3}) == other_rank, "and the rest wait on");
}

ddp_case(a_receive_gets_the_first_message_that_fits) {
  MatchQueue queue;
  const ArrivedPtr first = message(2, {Space::kProgram, 3}), second = message(1, {Space::kProgram, 3}),
                   third = message(1, {Space::kProgram, 3});
  for (const ArrivedPtr& each : {first, second, third}) queue.keep(each);
  expect(queue.take(1, {Space::kProgram, 5}) == nullptr, "another tag");
  expect(queue.take(1, {Space::kProgram, 3}) == second, "of this rank");
  expect(queue.take(kAnySource, {Space::kProgram, 3}) == first, "of any rank, the one that came first");
  expect(queue.take(kAnySource, {Space::kProgram, 3}) == third, "then the next");
}

ddp_case(a_receive_that_is_given_up_gets_nothing) {
  MatchQueue queue;
  const RequestPtr one = receive(1, {}), other = receive(1, {});
  queue.post(one);
  queue.post(other);
  queue.withdraw(one);
  queue.withdraw(one);
  expect(queue.claim(1, {}) == other, "the other one gets it");
}

ddp_case(what_nobody_receives_is_listed) {
  MatchQueue queue;
  for (const int64_t tag : {7, 8, 9, 10, 11}) queue.keep(message(1, {Space::kProgram, tag}));
  queue.keep(message(2, {Space::kProgram, 1}));
  expect_equal(queue.describe_kept(1, Space::kProgram), std::string("tag 7, tag 8, tag 9 and 2 more"), "of one rank");
  expect_equal(queue.describe_kept(2, Space::kProgram), std::string("tag 1"), "of the other");
  expect_equal(queue.describe_kept(3, Space::kProgram), std::string(), "of none");
}

/// Two plain lists, searched from the front.
struct Oracle {
  std::list<RequestPtr> receives;
  std::list<ArrivedPtr> kept;

  static bool fits(const RequestPtr& receive, int32_t source, const Key& key) {
    return receive->key.tag == key.tag && (receive->peer == -1 || receive->peer == source);
  }
  RequestPtr arrive(const ArrivedPtr& message) {
    for (auto at = receives.begin(); at != receives.end(); ++at)
      if (fits(*at, message->source, message->key)) {
        const RequestPtr found = *at;
        receives.erase(at);
        return found;
      }
    kept.push_back(message);
    return nullptr;
  }
  ArrivedPtr ask(const RequestPtr& receive) {
    for (auto at = kept.begin(); at != kept.end(); ++at)
      if (fits(receive, (*at)->source, (*at)->key)) {
        const ArrivedPtr found = *at;
        kept.erase(at);
        return found;
      }
    receives.push_back(receive);
    return nullptr;
  }
};

ddp_case(random_sequences_match_as_two_lists_do) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    MatchQueue queue;
    Oracle oracle;
    for (int step = 0; step < 200; ++step) {
      const Key key{Space::kProgram, static_cast<int64_t>(random() % 3)};
      const std::string where = "seed " + std::to_string(seed) + ", step " + std::to_string(step);
      if (random() % 2 == 0) {
        const ArrivedPtr came = message(static_cast<int32_t>(random() % 3), key);
        const RequestPtr found = queue.claim(came->source, key);
        if (found == nullptr) queue.keep(came);
        expect(found == oracle.arrive(came), where);
      } else {
        const RequestPtr asked = receive(static_cast<int32_t>(random() % 4) - 1, key);
        const ArrivedPtr found = queue.take(asked->peer, key);
        if (found == nullptr) queue.post(asked);
        expect(found == oracle.ask(asked), where);
      }
    }
  }
}
