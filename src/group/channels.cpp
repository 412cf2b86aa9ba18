// SPDX-License-Identifier: Apache-2.0
#include "group/channels.hpp"

#include "bootstrap/failure.hpp"
#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "group/consensus.hpp"
#include "group/group.hpp"
#include "group/requests.hpp"
#include "group/value_lane.hpp"

namespace ddp::group {
namespace {

constexpr int32_t kOwnChannel = kMostModels;  // of the blocking calls, once there are two models

}  // namespace

Channels::Channels() = default;
Channels::~Channels() {
  values_.reset();
  requests_.reset();
}

void Channels::start(std::unique_ptr<collective::Transport> first, const collective::TransportContext& context,
                     Health& health) {
  context_ = context;
  transports_.front() = std::move(first);
  own_ = transports_.front().get();
  if (std::unique_ptr<messages::Streams> streams = own_->make_streams(); streams != nullptr)
    messenger_ = std::make_unique<messages::Messenger>(std::move(streams), *context.control, *context.failure,
                                                       context.options.timeout_ms);
  if (messenger_ != nullptr && context.options.one_thread != 0) messenger_->let_watch();
  requests_ = std::make_unique<Requests>(health, *this, messenger_.get());
  values_ = std::make_unique<ValueLane>(*this);
}

void Channels::add(int32_t number) {
  auto& transport = transports_[static_cast<size_t>(number)];
  transport = first().open_channel(number);
  context_.failure->add_waker([raw = transport.get()] { raw->wake(); });
}

collective::Transport& Channels::open(int32_t number) {
  add(number);
  return of(number);
}

// What a rank knows of destroyed models may be ahead of the others, so a channel is free when all ranks say so.
int32_t Channels::take(Group& group) {
  uint32_t free = 0;
  for (size_t number = 0; number < models_.size(); ++number)
    if (models_[number].load() == 0) free |= uint32_t{1} << number;
  for (const std::string& answer : group.gather("channel", std::to_string(free)))
    free &= static_cast<uint32_t>(std::stoul(answer));
  const int32_t number = free == 0 ? 0 : __builtin_ctz(free);
  const auto make = [&] {
    if (number > 0 && own_ == &first()) {
      add(kOwnChannel);
      own_ = transports_[static_cast<size_t>(kOwnChannel)].get();
    }
    if (transports_[static_cast<size_t>(number)] == nullptr) add(number);
  };
  on_error<Error>(make, [&](const Error& error) {  // the others wait for this rank's connections
    break_for(group, error.is_agreed() ? Part::kLocal : Part::kOwn, nullptr, error);
  });
  models_[static_cast<size_t>(number)].fetch_add(1);
  return number;
}

void Channels::give_back(int32_t number) noexcept { models_[static_cast<size_t>(number)].fetch_sub(1); }

void Channels::open(const OpenPass& pass) {
  const std::lock_guard lock(opening_);
  for (const OpenPass& other : passes_) {
    if (other.queue == nullptr) continue;
    if (other.channel == pass.channel)
      throw make_error(DDP_ERROR_INVALID_STATE,
                       "ddp_model_begin_backward: a backward pass of another model is open, and %d models of a group may "
                       "have open passes at the same time, the first ones; end it first, or use a second group",
                       kMostModels);
  }
  passes_[static_cast<size_t>(pass.channel)] = pass;
  open_passes_.fetch_add(1);
  queues_.add(pass.channel, *pass.queue);
}

void Channels::close(const OpenPass& pass) noexcept {
  const std::lock_guard lock(opening_);
  queues_.remove(pass.channel);
  passes_[static_cast<size_t>(pass.channel)] = OpenPass{};
  open_passes_.fetch_sub(1);
}

void Channels::check_owner(const void* owner) const {
  if (!shadowing_.text.empty() && shadowing_.owner != owner)
    throw make_error(DDP_ERROR_INVALID_STATE, "ddp_model_begin_backward: %s", shadowing_.text.c_str());
}

void Channels::check_idle(const char* function, bool in_passes) const {
  if (any_open() && !in_passes)
    throw make_error(DDP_ERROR_INVALID_STATE,
                     "%s: a backward pass is open on this group; call ddp_model_end_backward first, or use a second group",
                     function);
  if (!shadowing_.text.empty()) throw make_error(DDP_ERROR_INVALID_STATE, "%s: %s", function, shadowing_.text.c_str());
}

void Channels::end_messages() noexcept {
  if (messenger_ != nullptr) messenger_->finish();
}

void Channels::shutdown() noexcept {
  end_messages();
  for (const auto& transport : transports_)
    if (transport != nullptr) transport->shutdown();
}

void Channels::stop() noexcept {
  messenger_.reset();
  own_ = nullptr;
  for (auto transport = transports_.rbegin(); transport != transports_.rend(); ++transport) transport->reset();
}

Channel::Channel(Group& group) : group_(group), number_(group.channels().take(group)) {}
Channel::~Channel() { group_.channels().give_back(number_); }

collective::Transport& Channel::transport() const noexcept { return group_.channels().of(number_); }
int32_t Channel::rank() const noexcept { return group_.rank(); }
int32_t Channel::size() const noexcept { return group_.size(); }
std::string Channel::name_of(int32_t rank) const { return group_.name_of(rank); }
collective::Ranks::Place Channel::place() const noexcept { return {group_.channels().queues(), &group_.calls(), number_}; }

std::vector<std::string> Channel::gather(std::string_view what, std::string_view mine) const {
  return group_.gather(what, mine);
}

bool Channel::can(collective::Collective kind, bool on_gpu) const noexcept { return transport().can(kind, on_gpu); }

std::unique_ptr<collective::BucketOperation> Channel::prepare(const collective::ExchangeSpec& spec) const {
  return or_break(group_, Part::kExchange, [&] { return transport().prepare(spec); });
}

void Channel::check_usable() const { group_.health().check_usable(); }
void Channel::fail(const Error& error) const { group_.health().fail(error); }
void Channel::give_up(const char* function, const Error& why) const noexcept { group_.health().give_up(function, why); }

void Channel::open_pass(collective::ProgressQueue& queue) const {
  check_usable();
  group_.channels().check_owner(this);
  group_.channels().open({number_, &queue});
  on_error([&] { group_.health().check_open(); },  // again: exit() looks in the other order
           [&](const Error&) { close_pass(queue); });
}

void Channel::close_pass(collective::ProgressQueue& queue) const noexcept { group_.channels().close({number_, &queue}); }

}  // namespace ddp::group
