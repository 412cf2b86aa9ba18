// SPDX-License-Identifier: Apache-2.0
#include "group/channels.hpp"

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "exchange/gathered.hpp"
#include "group/consensus.hpp"
#include "group/group.hpp"
#include "group/requests.hpp"
#include "nccl/bucket.hpp"
#include "nccl/nccl_transport.hpp"

namespace ddp::group {
namespace {

constexpr int32_t kOwnChannel = kMostModels;  // of the blocking calls, once there are two models

}  // namespace

Channels::Channels() = default;
Channels::~Channels() { requests_.reset(); }

void Channels::start(std::unique_ptr<collective::Transport> first, const collective::TransportContext& context,
                     Health& health) {
  context_ = context;
  transports_.front() = std::move(first);
  own_ = transports_.front().get();
  if (std::unique_ptr<messages::Streams> streams = own_->make_streams(); streams != nullptr)
    messenger_ = std::make_unique<messages::Messenger>(std::move(streams), *context.control, *context.failure,
                                                       context.options.timeout_ms);
  requests_ = std::make_unique<Requests>(health, *this, messenger_.get());
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
    if (other.on_gpu && pass.on_gpu)
      throw Error(DDP_ERROR_INVALID_STATE,
                  "ddp_model_begin_backward: a backward pass of another model is open, and gradients on GPUs are reduced "
                  "by one pass at a time; end it first, or use a second group");
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

void Channels::shutdown() noexcept {
  if (messenger_ != nullptr) messenger_->finish();
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
bool Channel::pollable() const noexcept { return group_.channels().own().pollable(); }

std::vector<std::string> Channel::gather(std::string_view what, std::string_view mine) const {
  return group_.gather(what, mine);
}

// What only gives can always be had by gathering.
bool Channel::can(collective::Collective kind, bool on_gpu) const noexcept {
  return on_gpu ? kind != collective::Collective::kFusedStep
                : kind == collective::Collective::kBucketAllGather || transport().can(kind);
}

std::unique_ptr<collective::BucketOperation> Channel::prepare(const collective::ExchangeSpec& spec) const {
  if (!spec.on_gpu)
    return transport().can(spec.kind()) ? transport().prepare(spec)
                                        : collective::make_gathered(transport(), group_.rank(), spec);
  return or_break(group_, Part::kExchange, [&] { return prepare_on_gpu(spec); });
}

/// A rank that leaves ends NCCL, or what has been enqueued keeps the device.
std::unique_ptr<collective::BucketOperation> Channel::prepare_on_gpu(const collective::ExchangeSpec& spec) const {
  auto metadata = transport().prepare(nccl::metadata_of(spec, group_.size()));
  std::unique_ptr<nccl::Operation> made;
  all_or_none(group_, "GPU memory", [&] {
    made = group_.gpu().nccl().prepare(spec, std::move(metadata));
    made->prepare_use();
  });
  const auto use = [&] { or_break(group_, Part::kExchange, [&] { made->use_once(); }); };
  or_break(group_, Part::kOwn, use);  // the others are inside NCCL
  return made;
}

void Channel::check_usable() const { group_.health().check_usable(); }
void Channel::fail(const Error& error) const { group_.health().fail(error); }
void Channel::give_up(const char* function, const Error& why) const noexcept { group_.health().give_up(function, why); }

void Channel::open_pass(bool on_gpu, collective::ProgressQueue& queue) const {
  check_usable();
  group_.channels().check_owner(this);
  group_.channels().open({number_, on_gpu, &queue});
  on_error([&] { group_.health().check_open(); },  // again: exit() looks in the other order
           [&](const Error&) { close_pass(on_gpu, queue); });
}

void Channel::close_pass(bool on_gpu, collective::ProgressQueue& queue) const noexcept {
  group_.channels().close({number_, on_gpu, &queue});
}

void Channel::order_after(void* stream) const { group_.gpu().nccl().order_after(stream); }
void Channel::order_before(void* stream) const { group_.gpu().nccl().order_before(stream); }
bool Channel::is_capturing(void* stream) const { return group_.gpu().device().is_capturing(stream); }

void Channel::settle(const char* function) const {
  if (group_.options().recoverable == 0) return;
  Gpu& gpu = group_.gpu();
  gpu.device().refuse_capture(gpu.nccl().stream(), function,
                              "the group can recover (recoverable = 1), so the host waits for what the ranks exchange");
  gpu.settle();
}

bool Channel::gave_on_gpu(const std::byte* data, int64_t bytes) const noexcept {
  return group_.memory().gave_on_gpu(data, bytes);
}

}  // namespace ddp::group
