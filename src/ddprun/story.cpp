// SPDX-License-Identifier: Apache-2.0
// Tested by unit/ddprun/restarts_test.cpp.
#include "ddprun/story.hpp"

#include <cstdio>

namespace ddp::ddprun {
namespace {

constexpr size_t kFirstTexts = 20;
constexpr size_t kEnd = 60;

}  // namespace

void Story::add(double seconds, const std::string& text) {
  if (beginning_.size() < kFirstTexts) return beginning_.push_back({seconds, text});
  end_.push_back({seconds, text});
  if (end_.size() <= kEnd) return;
  end_.pop_front();
  ++left_out_;
}

std::vector<Story::Event> Story::events() const {
  std::vector<Event> events = beginning_;
  if (left_out_ > 0) events.push_back({beginning_.back().seconds, "... " + std::to_string(left_out_) + " more ..."});
  events.insert(events.end(), end_.begin(), end_.end());
  return events;
}

std::vector<std::string> Story::lines() const {
  std::vector<std::string> lines;
  for (const Event& event : events()) {
    const bool gap = left_out_ > 0 && lines.size() == beginning_.size();
    char when[32] = "         ";
    if (!gap) snprintf(when, sizeof when, "%8.1f s  ", event.seconds);
    lines.push_back(when + event.text);
  }
  return lines;
}

}  // namespace ddp::ddprun
