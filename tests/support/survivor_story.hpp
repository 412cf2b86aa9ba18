// SPDX-License-Identifier: Apache-2.0
// What the ranks of survivor.hpp tell: who took part in which step, and the weights that come of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp::test {

constexpr int64_t kSizes[] = {7, 5'000, 70'000};
constexpr float kMomentum = 0.5F, kRate = 0.0625F;

inline float gradient_of(int32_t id, int64_t step, int64_t element) noexcept {
  return static_cast<float>((id * 7 + step * 3 + element) % 11 - 5);
}

/// What one rank came to: "step members;..." and the weights' hash.
struct Story {
  std::vector<uint64_t> members;  // by step, a bit for each id
  uint64_t hash = 0;
};

inline uint64_t hash_of(const std::vector<std::vector<float>>& weights) noexcept {
  uint64_t hash = 1469598103934665603U;
  for (const std::vector<float>& each : weights) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(each.data());
    for (size_t at = 0; at < each.size() * sizeof(float); ++at) hash = (hash ^ bytes[at]) * 1099511628211U;
  }
  return hash;
}

inline std::string write_story(const Story& story) {
  std::string text = std::to_string(story.hash);
  for (const uint64_t members : story.members) text += " " + std::to_string(members);
  return text;
}

inline Story read_story(const std::string& text) {
  Story story;
  size_t at = 0;
  story.hash = std::stoull(text, &at);
  for (size_t used = 0; at < text.size(); at += used) story.members.push_back(std::stoull(text.substr(at), &used));
  return story;
}

/// What the weights must be after these steps.
inline uint64_t replay(const std::vector<uint64_t>& members_of_steps) {
  std::vector<std::vector<float>> weights, momenta;
  for (const int64_t size : kSizes) {
    weights.emplace_back(static_cast<size_t>(size), 1.0F);
    momenta.emplace_back(static_cast<size_t>(size), 0.0F);
  }
  for (size_t step = 0; step < members_of_steps.size(); ++step) {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < 64; ++id)
      if ((members_of_steps[step] >> id & 1) != 0) ids.push_back(id);
    const auto count = static_cast<float>(ids.size());
    for (size_t p = 0; p < weights.size(); ++p) {
      for (size_t i = 0; i < weights[p].size(); ++i) {
        float sum = 0;
        for (const int32_t id : ids) sum += gradient_of(id, static_cast<int64_t>(step), static_cast<int64_t>(i));
        momenta[p][i] = kMomentum * momenta[p][i] + sum / count;
        weights[p][i] -= kRate * momenta[p][i];
      }
    }
  }
  return hash_of(weights);
}

}  // namespace ddp::test
