// SPDX-License-Identifier: Apache-2.0
#include "discovery/join_place.hpp"

#include <cstdlib>
#include <utility>

#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "discovery/place.hpp"
#include "discovery/signpost.hpp"
#include "os/log.hpp"
#include "os/loopback.hpp"

namespace ddp::bootstrap {
namespace {

constexpr int64_t kStoreWaitMs = 50;
constexpr int32_t kIdsBeyond =
    4;  // ids without a record, of ranks that came to nothing, after which the next look begins anew

bool is_lowest_of_host(const Control& control) {
  const Member& self = control.member(control.rank());
  for (int32_t rank = 0; rank < control.rank(); ++rank)
    if (control.member(rank).boot_id == self.boot_id && control.member(rank).host == self.host) return false;
  return true;
}

}  // namespace

JoinPlace::JoinPlace(const Meeting& meeting, const ddp_group_options& options, const char* path)
    : meeting_(meeting), options_(options) {
  const std::string name = meeting.group_name.empty() ? "" : "." + meeting.group_name;
  if (options.store != nullptr) store_ = *options.store;
  if (store_) options_.store = &*store_;
  if (path != nullptr && *path != '\0') {
    kind_ = Kind::kFile;
    path_ = path + name;
  } else if (meeting.kind == Meeting::Kind::kFile && !meeting.private_place) {
    kind_ = Kind::kFile;
    path_ = meeting.place + name + ".join";
  } else if (meeting.kind == Meeting::Kind::kStore) {
    kind_ = Kind::kStore;
  } else if (is_at_address()) {
    kind_ = Kind::kAddress;
  }
}

bool JoinPlace::is_at_address() const noexcept {
  return meeting_.kind == Meeting::Kind::kTcp || (meeting_.kind == Meeting::Kind::kEnvironment && !meeting_.place.empty());
}

std::string JoinPlace::own_host() const {
  const auto is_on_network = [this] {
    return !net::resolve(net::split_place(meeting_.place).first, os::Deadline::never()).front().is_loopback();
  };
  const bool may_be_theirs = (meeting_.kind == Meeting::Kind::kFile && !meeting_.private_place) ||
                             meeting_.kind == Meeting::Kind::kStore || (is_at_address() && is_on_network());
  return may_be_theirs ? net::own_address(secure_getenv("DDP_SOCKET_IFNAME")).host() : os::loopback();
}

JoinPlace::~JoinPlace() {
  if (!published_.empty()) static_cast<void>(try_to([&] { Place::file(path_).withdraw(published_); }));
}

void JoinPlace::put_into_file(const std::string& record) {
  Place::file(path_).publish(record);
  published_ = record;
}

void JoinPlace::put_into_store(const Control& control, const std::string& record) {
  if (!std::exchange(has_told_, true)) Place::of_rank(meeting_, options_, control.member(control.rank()).id).publish(record);
}

void JoinPlace::introduce(const Control& control, const std::string& record,
                          const std::vector<std::string>& records) noexcept {
  const auto say = [&] {
    met_ = records;
    if (kind_ == Kind::kStore) put_into_store(control, record);  // its functions are called in ddp_group_create alone
  };
  if (const std::optional<Error> problem = try_to(say))
    os::log_of(*problem, DDP_LOG_WARNING, "new ranks are not told here where the group is: %s", problem->what());
}

void JoinPlace::stand_at_address(const Control& control, const std::string& record_of_rank_0) {
  signpost_.reset();
  if (is_lowest_of_host(control)) signpost_ = set_up_signpost(meeting_, options_, record_of_rank_0);
}

void JoinPlace::tell(const Control& control, const std::string& record, const std::string& record_of_rank_0) noexcept {
  const auto say = [&] {
    if (kind_ == Kind::kFile && control.rank() == 0) put_into_file(record);
    if (kind_ == Kind::kAddress) stand_at_address(control, record_of_rank_0);
    if (kind_ == Kind::kStore) put_into_store(control, record);
  };
  if (const std::optional<Error> problem = try_to(say))
    os::log_of(*problem, kind_ == Kind::kAddress && control.rank() != 0 ? DDP_LOG_INFO : DDP_LOG_WARNING,
               "new ranks are not told here where the group is: %s", problem->what());
}

Error JoinPlace::nobody_there(int64_t ms) const {
  switch (kind_) {
    case Kind::kNowhere: break;
    case Kind::kFile: return texts::nobody_to_join("in " + path_, ms);
    case Kind::kStore: return texts::nobody_to_join("in the store", ms);
    case Kind::kAddress: return texts::nobody_to_join("at " + meeting_.place + " and the ports after it", ms, true);
  }
  return texts::not_taken_in(ms);
}

std::function<std::string()> JoinPlace::lookout() const {
  if (met_.empty()) return lookout_at_place();
  const std::function<std::string()> at_place = kind_ == Kind::kStore ? nullptr : lookout_at_place();
  return [this, at_place, next = size_t{0}]() mutable {
    const size_t i = std::exchange(next, next == met_.size() ? 0 : next + 1);
    if (i < met_.size()) return met_[i];
    return at_place ? at_place() : std::string();
  };
}

std::function<std::string()> JoinPlace::lookout_at_place() const {
  switch (kind_) {
    case Kind::kNowhere: break;
    case Kind::kFile: return [this] { return Place::file(path_).find(1); };
    case Kind::kAddress:
      return [this, told = std::string()]() mutable {
        std::string doubt;
        std::string record = ask_signpost(meeting_, options_, doubt);
        if (!doubt.empty() && std::exchange(told, doubt) != doubt)
          os::log(DDP_LOG_WARNING, "ddp_group_create: %s; the group is still looked for", doubt.c_str());
        return record;
      };
    case Kind::kStore:
      return [this, id = int32_t{0}, missing = int32_t{0}]() mutable {
        std::string record = Place::of_rank(meeting_, options_, id++).find(kStoreWaitMs);
        missing = record.empty() ? missing + 1 : 0;
        if (missing >= kIdsBeyond) id = missing = 0;
        return record;
      };
  }
  throw Error(
      DDP_ERROR_INVALID_ARGUMENT,
      "ddp_group_create: join is 1, but nothing says where the group is: set MASTER_ADDR and MASTER_PORT as the others "
      "have them, use their rendezvous file:///path, tcp://host:port or store://, or set DDP_JOIN_FILE to the same "
      "path on all ranks");
}

}  // namespace ddp::bootstrap
