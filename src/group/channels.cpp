// SPDX-License-Identifier: Apache-2.0
#include "group/channels.hpp"

#include "control/call_state.hpp"
#include "core/attempt.hpp"
#include "exchange/gathered.hpp"
#include "group/consensus.hpp"
#include "group/group.hpp"
#include "nccl/bucket.hpp"
#include "nccl/nccl_transport.hpp"

namespace ddp::group {
namespace {

constexpr int32_t kOwnChannel = kMostModels;  // of the blocking calls, once there are two models

}  // namespace

void Channels::start(std::unique_ptr<collective::Transport> first, const collective::TransportContext& context) {
  context_ = context;
  transports_.front() = std::move(first);
  own_ = transports_.front().get();
}

void Channels::add(int32_t number) {
  auto& transport = transports_[static_cast<size_t>(number)];
  transport = first().open_channel(number);
  context_.failure->add_waker([raw = transport.get()] { raw->wake(); });
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
  for (const auto& transport : transports_)
    if (transport != nullptr) transport->shutdown();
}

void Channels::stop() noexcept {
  own_ = nullptr;
  for (auto transport = transports_.rbegin(); transport != transports_.rend(); ++transport) transport->reset();
}

Channel::Channel(Group& group) : group_(group), number_(group.channels().take(group)), queues_(group.channels().queues()) {}
Channel::~Channel() { group_.channels().give_back(number_); }

collective::Transport& Channel::transport() const noexcept { return group_.channels().of(number_); }

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

Channel::Open::Open(const Channel& channel, const void* owner, bool on_gpu, collective::ProgressQueue& queue)
    : group_(channel.group_), pass_{channel.number_, on_gpu, &queue} {
  group_.health().check_usable();
  group_.channels().check_owner(owner);
  group_.channels().open(pass_);
  on_error([&] { group_.health().check_open(); },  // again: exit() looks in the other order
           [&](const Error&) { group_.channels().close(pass_); });
}

Channel::Open::~Open() { group_.channels().close(pass_); }

}  // namespace ddp::group
