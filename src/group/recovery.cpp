#include "group/recovery.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "bootstrap/rendezvous/quorum.hpp"
#include "core/attempt.hpp"
#include "group/group_impl.hpp"
#include "group/membership_log.hpp"
#include "os/log.hpp"

namespace ddp::group {
namespace {

constexpr int64_t kCauseMs = 1'000;

}  // namespace

Survival* Recovery::survival(Group& group) noexcept { return group.impl_->survival.get(); }

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
  return {static_cast<double>(silent_ns) * 1e-9, sign.pass, sign.bucket};
}

int32_t Recovery::run(Group& group, const bootstrap::RecoveryRule& rule) {
  std::unique_ptr<Group::Impl>& impl = group.impl_;
  Survival& survival = *impl->survival;
  for (;;) {
    const std::vector<std::shared_ptr<Follower>> followers = survival.followers();
    for (const auto& follower : followers) follower->leave_group();
    impl->retire();
    std::unique_ptr<bootstrap::Control> control = survival.meet(*impl->control, impl->failure, rule, impl->options);
    auto next = std::make_unique<Group::Impl>(std::move(control), impl->options, impl->origin, impl->survival, impl->arenas);
    int32_t source = -1;
    const std::optional<Error> failed = try_to([&] {
      on_error([&] { next->connect("ddp_group_recover"); },
               [&](const Error& error) {
                 if (!error.is_agreed()) next->health.give_up("ddp_group_recover", error);
               });
      impl.swap(next);
      size_t common = followers.size();  // some ranks may have been on their way to one more
      for (const std::string& count : group.gather("followers", std::to_string(common)))
        if (count != kNewcomer) common = std::min(common, static_cast<size_t>(std::stoul(count)));
      for (size_t i = 0; i < common; ++i) source = std::max(source, followers[i]->rejoin_group());
    });
    if (!failed.has_value()) {
      int64_t step = -1;
      for (const auto& follower : followers) step = std::max(step, follower->steps());
      log_membership(*impl->control, impl->options, {Formation::kRecovered, survival.generation(), step});
      for (const auto& follower : followers)
        if (const std::optional<Error> problem = follower->take_problem()) throw Error(*problem);
      return source;
    }
    if (!breaks_group(failed->status())) throw Error(*failed);
    os::log(DDP_LOG_WARNING, "the recovery begins again: %s", failed->what());
  }
}

}  // namespace ddp::group
