// SPDX-License-Identifier: Apache-2.0
// The channels of a group: transports over the same members, each with a sequence of collectives of its own. A model's
// buckets have a channel, so that the passes of several models may be open at the same time, whatever order their gradients
// come in. The first model uses the transport that the group was made with, as the blocking calls do; with the second model
// the blocking calls get a channel of their own, because a pass may end (and compare or repair replicas) while another is
// open. So do the requests, because they may be under way in any of these, and values that come late (value_lane.hpp).
//
// A model's channel is used again when the model is destroyed. A model without a free channel shares the first one; then
// only one of the two may have a pass open. This class also knows what prevents a pass or a blocking call. Threads: take()
// and own() from one thread at a time; passes open and close on any. Tested by conformance/channels_test.cpp.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exchange/messages/messenger.hpp"
#include "exchange/open_queues.hpp"
#include "exchange/ranks.hpp"
#include "exchange/transport.hpp"

namespace ddp::group {

class Group;
class Health;
class Requests;
class ValueLane;

/// Models whose passes may be open at the same time.
inline constexpr int32_t kMostModels = bootstrap::kMostChannels - 3;

class Channels {
 public:
  Channels();
  ~Channels();
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  /// Made by a group that forms. `context` is for channels.
  void start(std::unique_ptr<collective::Transport> first, const collective::TransportContext& context, Health& health);
  [[nodiscard]] bool has_started() const noexcept { return requests_ != nullptr; }

  [[nodiscard]] collective::Transport& first() const noexcept { return *transports_.front(); }
  /// For blocking calls.
  [[nodiscard]] collective::Transport& own() const noexcept { return *own_; }
  [[nodiscard]] collective::Transport& of(int32_t number) const noexcept {
    return *transports_[static_cast<size_t>(number)];
  }

  /// A number for a model that all ranks have agreed on, from 1, so that two models that are built alike are not taken for
  /// one.
  [[nodiscard]] uint64_t next_model() noexcept { return ++numbered_; }
  /// A channel for a model. Collective. Throws OUT_OF_MEMORY and the like on all ranks.
  [[nodiscard]] int32_t take(Group& group);
  void give_back(int32_t number) noexcept;
  /// A channel that is for no model. Collective, once. Throws as Transport::open_channel.
  collective::Transport& open(int32_t number);

  struct OpenPass {
    int32_t channel = 0;
    collective::ProgressQueue* queue = nullptr;
  };
  /// Throws INVALID_STATE if another pass is in the way.
  void open(const OpenPass& pass);
  void close(const OpenPass& pass) noexcept;
  [[nodiscard]] bool any_open() const noexcept { return open_passes_.load() != 0; }

  /// Some rank only answers calls on this owner's model: everything else is refused with this text, until it is empty again.
  void set_shadowing(const void* owner, std::string text) { shadowing_ = {owner, std::move(text)}; }
  /// Throws INVALID_STATE if some rank only answers calls on the model of another owner.
  void check_owner(const void* owner) const;
  /// Throws INVALID_STATE while a pass is open (except with `in_passes`) or some rank only answers.
  void check_idle(const char* function, bool in_passes) const;

  /// How long this rank has waited for each other one.
  [[nodiscard]] const collective::Waits& waits() const noexcept { return *context_.waits; }
  [[nodiscard]] collective::OpenQueues& queues() noexcept { return queues_; }
  [[nodiscard]] bootstrap::CallState& calls() const noexcept { return context_.control->calls(); }
  /// Messages from one rank to one other (messages.hpp). Any thread; not in a group of one.
  [[nodiscard]] messages::Messenger& messenger() const noexcept { return *messenger_; }
  /// What was posted. Once the channels have been started.
  [[nodiscard]] Requests& requests() const noexcept { return *requests_; }
  /// Values that come after their steps. Once the channels have been started.
  [[nodiscard]] ValueLane& values() const noexcept { return *values_; }
  /// This rank leaves, perhaps with open requests: the others have what it sent, and know that no more comes.
  void end_messages() noexcept;
  /// In good order; the last call but stop().
  void shutdown() noexcept;
  /// The transports end; they are not used any more.
  void stop() noexcept;

 private:
  void add(int32_t number);

  collective::TransportContext context_;
  std::array<std::unique_ptr<collective::Transport>, bootstrap::kMostChannels> transports_;
  collective::Transport* own_ = nullptr;
  std::unique_ptr<messages::Messenger> messenger_;
  std::unique_ptr<Requests> requests_;
  std::unique_ptr<ValueLane> values_;
  std::array<std::atomic<int32_t>, kMostModels> models_{};  // that have the channel
  collective::OpenQueues queues_;
  std::mutex opening_;  // guards passes_
  std::array<OpenPass, kMostModels> passes_{};
  std::atomic<int32_t> open_passes_{0};
  uint64_t numbered_ = 0;
  struct Shadowing {
    const void* owner = nullptr;
    std::string text;  // may be empty
  } shadowing_;
};

/// A model's channel, as an owned object.
class Channel final : public collective::Ranks {
 public:
  /// Collective.
  explicit Channel(Group& group);
  ~Channel() override;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  [[nodiscard]] Group& group() const noexcept { return group_; }
  /// From 0, the lowest that was free; the same on all ranks.
  [[nodiscard]] int32_t number() const noexcept { return number_; }
  /// Can it do such an exchange? Pure, the same on all ranks.
  [[nodiscard]] bool can(collective::Collective kind, bool on_gpu) const noexcept;

  [[nodiscard]] int32_t rank() const noexcept override;
  [[nodiscard]] int32_t size() const noexcept override;
  [[nodiscard]] std::string name_of(int32_t rank) const override;
  [[nodiscard]] Place place() const noexcept override;
  [[nodiscard]] std::vector<std::string> gather(std::string_view what, std::string_view mine) const override;
  /// Only what it can.
  [[nodiscard]] std::unique_ptr<collective::BucketOperation> prepare(const collective::ExchangeSpec& spec) const override;
  [[nodiscard]] collective::Transport& transport() const noexcept override;
  void check_usable() const override;
  void fail(const Error& error) const override;
  void give_up(const char* function, const Error& why) const noexcept override;
  /// Who opens passes is known as this object (Channels::set_shadowing).
  void open_pass(collective::ProgressQueue& queue) const override;
  void close_pass(collective::ProgressQueue& queue) const noexcept override;

 private:
  Group& group_;
  const int32_t number_;
};

}  // namespace ddp::group
