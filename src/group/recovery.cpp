// SPDX-License-Identifier: Apache-2.0
#include "group/recovery.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string_view>
#include <thread>

#include "bootstrap/failure.hpp"
#include "core/attempt.hpp"
#include "discovery/quorum.hpp"
#include "group/consensus.hpp"
#include "group/group_impl.hpp"
#include "group/membership_log.hpp"
#include "group/tracing.hpp"
#include "os/log.hpp"
#include "trace/watch.hpp"

namespace ddp::group {
namespace {

constexpr int64_t kCauseMs = 1'000;
constexpr const char* kName = "ddp_group_recover";

int64_t steps_of(const std::vector<std::shared_ptr<Follower>>& followers) {
  int64_t most = -1;
  for (const auto& follower : followers) most = std::max(most, follower->steps());
  return most;
}

}  // namespace

Survival* Recovery::survival(Group& group) noexcept { return group.impl_->survival(); }

bool Recovery::is_broken(const Group& group) noexcept { return group.impl_->failure.broken(); }

bool Recovery::await_broken(const Group& group) {
  const os::Deadline deadline = os::Deadline::in_ms(kCauseMs);
  while (!is_broken(group) && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return is_broken(group);
}

std::vector<int32_t> Recovery::failed(const Group& group) {
  if (!is_broken(group)) return {};
  return Survival::suspects(*group.impl_->control, group.impl_->failure, group.impl_->options.dead_after_ms);
}

Recovery::Progress Recovery::progress(const Group& group, int32_t rank) {
  const bootstrap::Control::Sign sign = group.impl_->control->last_sign(rank);
  const int64_t silent_ns = sign.at_ns == 0 ? 0 : os::now_ns() - sign.at_ns;
  const bootstrap::Whereabouts& where = sign.where;
  return {static_cast<double>(silent_ns) * 1e-9, where.pass, where.bucket, static_cast<int32_t>(where.call), where.in_call};
}

Changes Recovery::changes(const Group& group) {
  const Survival* const survival = group.impl_->survival();
  return survival == nullptr ? Changes() : survival->changes();
}

int32_t Recovery::take_place(Group& group, const std::vector<std::shared_ptr<Follower>>& mine) {
  Survival& survival = *group.impl_->survival();
  // Some ranks may have started one more.
  size_t common = SIZE_MAX;
  for (const std::string& count : group.gather("followers", survival.is_member() ? std::to_string(mine.size()) : kNewcomer))
    if (count != kNewcomer) common = std::min(common, static_cast<size_t>(std::stoul(count)));
  int32_t source = -1;
  const size_t here = std::min(common, mine.size());
  for (size_t i = 0; i < here; ++i) source = std::max(source, mine[i]->rejoin_group());
  survival.owe(common - here);
  if (common == here) confirm(group, {mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(here)});
  return source;
}

void Recovery::confirm(Group& group, const std::vector<std::shared_ptr<Follower>>& followers) {
  or_break(group, Part::kExchange, [&] {
    group.impl_->survival()->keeper().restore(group, followers);
    group.impl_->confirm();
  });
}

void Survival::note_commit(Group& group) {
  if (owed_ > 0 && --owed_ == 0) Recovery::confirm(group, followers());
}

Recovery::Outcome Recovery::run(Group& group, const bootstrap::RecoveryRule& rule) {
  const std::lock_guard replaces(group.replacing_);
  group.health().check_open();  // it may be exit() that held it
  std::unique_ptr<Group::Impl>& impl = group.impl_;
  std::unique_ptr<Group::Impl> broken;  // as the call found it, once another one is tried in its place
  std::vector<bootstrap::Member> before;
  before.reserve(static_cast<size_t>(group.size()));
  for (int32_t rank = 0; rank < group.size(); ++rank) before.push_back(impl->control->member(rank));
  const int32_t source = on_error([&] { return try_until_whole(group, rule, broken); },
                                  [&](const Error&) {
                                    if (broken != nullptr) impl.swap(broken);
                                  });
  return finish(group, before, source);
}

int32_t Recovery::try_until_whole(Group& group, const RecoveryRule& rule, std::unique_ptr<Group::Impl>& broken) {
  std::unique_ptr<Group::Impl>& impl = group.impl_;
  Survival& survival = *impl->survival();
  for (auto new_ranks = bootstrap::NewRanks::kTaken;; new_ranks = bootstrap::NewRanks::kWait) {
    const std::vector<std::shared_ptr<Follower>> followers = survival.followers();
    for (const auto& follower : followers) follower->stop();
    survival.keeper().set_aside(group, followers);
    for (const auto& follower : followers) follower->leave_group();
    impl->retire();
    survival.keeper().leave(steps_of(followers));
    auto made = std::make_unique<Group::Impl>(survival.meet(*impl->control, impl->failure, rule, impl->options, new_ranks),
                                              impl->options, impl->origin, impl->recoverable, impl->arenas, impl->own_gpu);
    Group::Impl& next = *made;
    int32_t source = -1;
    const std::optional<Error> failed = try_to([&] {
      next.connect(kName);
      next.control->calls().set_watch(impl->control->calls().shared_watch());
      impl.swap(made);
      if (broken == nullptr) broken.swap(made);
      source = take_place(group, followers);
    });
    if (!failed.has_value()) return source;
    const bool goes_on = survival.may_try_again(*next.control, *failed);
    next.give_up(kName, *failed);
    if (!goes_on) throw Error(*failed);
    os::log_of(*failed, DDP_LOG_WARNING, "the recovery begins again: %s", failed->what());
  }
}

Recovery::Outcome Recovery::finish(Group& group, const std::vector<bootstrap::Member>& before, int32_t source) {
  Group::Impl& impl = *group.impl_;
  Survival& survival = *impl.survival();
  survival.set_changes(Changes::between(before, *impl.control));
  const std::vector<std::shared_ptr<Follower>> followers = survival.followers();
  const int64_t step = steps_of(followers);
  const Keeper::Outcome kept = survival.keeper().end_recovery();
  if (trace::Watch* const watch = group.calls().watch()) {
    if (impl.control->member(group.rank()).world_rank < 0)  // no sub-group
      tell_place(group, survival.generation());
    watch->end_recovery();
  }
  const std::string_view event = kept.epoch < 0 ? Formation::kRecovered : Formation::kWentBack;
  log_membership(*impl.control, impl.options, {event, survival.generation(), step});
  for (const auto& follower : followers)
    if (const std::optional<Error> problem = follower->take_problem()) throw Error(*problem);
  const bool whole = std::all_of(followers.begin(), followers.end(), [](const auto& each) { return each->is_whole(); });
  return {kept.epoch < 0 ? source : -1, whole ? step : -1, kept};
}

}  // namespace ddp::group
