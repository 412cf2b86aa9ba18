// SPDX-License-Identifier: Apache-2.0
#include "exchange/messages/match_queue.hpp"

#include <algorithm>
#include <utility>

namespace ddp::messages {
namespace {

constexpr size_t kTagsSaid = 3;

/// The first for which `is_it` holds, taken out of the list; NULL if there is none.
template <class Pointer, class IsIt>
Pointer take_first(std::deque<Pointer>& list, const IsIt& is_it) {
  const auto found = std::find_if(list.begin(), list.end(), is_it);
  if (found == list.end()) return nullptr;
  Pointer taken = std::move(*found);
  list.erase(found);
  return taken;
}

}  // namespace

RequestPtr MatchQueue::claim(int32_t source, const Key& key) {
  return take_first(receives_, [&](const RequestPtr& receive) {
    return receive->key == key && (receive->peer == source || receive->peer == kAnySource);
  });
}

ArrivedPtr MatchQueue::take(int32_t source, const Key& key) {
  return take_first(messages_, [&](const ArrivedPtr& message) {
    return message->key == key && (source == message->source || source == kAnySource);
  });
}

void MatchQueue::withdraw(const RequestPtr& receive) {
  static_cast<void>(take_first(receives_, [&](const RequestPtr& each) { return each == receive; }));
}

std::string MatchQueue::describe_kept(int32_t source, Space space) const {
  std::string text;
  size_t number = 0;
  for (const ArrivedPtr& message : messages_) {
    if (message->key.space != space || (source != kAnySource && message->source != source)) continue;
    if (++number <= kTagsSaid) text += (number == 1 ? "tag " : ", tag ") + std::to_string(message->key.tag);
  }
  return number <= kTagsSaid ? text : text + " and " + std::to_string(number - kTagsSaid) + " more";
}

}  // namespace ddp::messages
