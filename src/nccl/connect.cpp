// SPDX-License-Identifier: Apache-2.0
#include "nccl/connect.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/attempt.hpp"
#include "core/error.hpp"

namespace ddp::nccl {
namespace {

constexpr int64_t kReachMs = 2000;  // for ranks to say how far NCCL has connected them

/// How far it is when the time is up.
enum class Reach : char { kConnected = 'c', kWaits = 'w', kInside = 'i' };

std::string bytes_of(Reach reach) { return std::string(1, static_cast<char>(reach)); }

/// The ranks that are behind others, with what each does; empty: all are as far.
std::string late_ranks(bootstrap::Control& control, const std::vector<std::string>& reached) {
  for (const Reach late : {Reach::kInside, Reach::kWaits}) {
    const auto count = std::count(reached.begin(), reached.end(), bytes_of(late));
    if (count == 0) continue;
    if (count == std::ssize(reached)) return {};
    std::string names;
    for (size_t rank = 0; rank < reached.size(); ++rank)
      if (reached[rank] == bytes_of(late))
        names += (names.empty() ? "" : ", ") + control.member(static_cast<int32_t>(rank)).name() +
                 (late == Reach::kInside ? " has not come back from NCCL's first call" : " is not connected");
    return names;
  }
  return {};
}

}  // namespace

std::string make_id(const bootstrap::Control& control, const ddp_nccl_table& nccl) {
  std::string id;
  with_name(control, [&] { id = Communicator::make_id(nccl); });
  return id;
}

std::shared_ptr<Communicator> connect_ranks(bootstrap::Control& control, const gpu::Device& device,
                                            const ddp_nccl_table& nccl, const Communicator::Place& place,
                                            os::Deadline deadline, const std::function<void()>& check) {
  auto communicator = std::make_shared<Communicator>(device, nccl);
  const std::optional<Error> problem = try_to<Error>([&] { communicator->connect(place, deadline, check); });
  if (problem && problem->status() != DDP_ERROR_TIMED_OUT) throw Error(*problem);
  Reach reach = Reach::kConnected;
  if (problem) reach = communicator->is_inside_init() ? Reach::kInside : Reach::kWaits;
  const os::Deadline told_by =
      deadline.is_never() ? os::Deadline::never() : os::Deadline::in_ms(deadline.left_ms() + kReachMs);
  const std::string late = late_ranks(control, control.gather("NCCL's connections", bytes_of(reach), told_by));
  if (!late.empty())
    throw make_error(DDP_ERROR_TIMED_OUT,
                     "NCCL did not connect the %d ranks in time: %s, and the others wait for it; NCCL_DEBUG=INFO there says "
                     "more, and the processes must be restarted",
                     place.size, late.c_str());
  if (problem) throw Error(*problem);
  return communicator;
}

}  // namespace ddp::nccl
