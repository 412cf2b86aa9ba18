// SPDX-License-Identifier: Apache-2.0
#include "group/tracing.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "control/call_state.hpp"
#include "control/control.hpp"
#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "exchange/gpu_side.hpp"
#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "group/consensus.hpp"
#include "group/ending.hpp"
#include "group/gpu_times.hpp"
#include "group/health.hpp"
#include "os/clock.hpp"
#include "os/file.hpp"
#include "os/log.hpp"
#include "os/own_files.hpp"
#include "trace/merge.hpp"
#include "trace/program_numbers.hpp"
#include "trace/watch.hpp"

namespace ddp::group {
namespace {

using bootstrap::UserCall;

constexpr const char* kStart = "ddp_group_start_trace";
constexpr const char* kStop = "ddp_group_stop_trace";
constexpr int kClockRounds = 8;
constexpr int64_t kLockMs = 30'000;       // a rank that writes the trace is done by then, or stopped
constexpr const char* kRings = ".ranks";  // behind the name of the trace: the folder of its rings

/// Its own; the last one removes the folder.
void remove_ring(const trace::Session& session, const std::string& own) {
  if (session.folder.empty()) return;
  (void)os::file_table().unlink(AT_FDCWD, own.c_str());
  (void)::rmdir(session.folder.c_str());
}

/// May it still write into its ring? Ranks of other machines may share the folder.
bool may_go_on(const trace::RingHead::Owner& owner, const bootstrap::Member& self) {
  const bool is_here = self.boot_id.substr(0, sizeof owner.boot - 1) == owner.boot;
  return owner.ended == 0 && (!is_here || ::kill(owner.pid, 0) == 0 || errno != ESRCH);
}

/// The trace of this group is over, or has not begun on all ranks.
void forget(Group& group, const trace::Session& session) noexcept {
  trace::Watch& watch = *group.calls().watch();
  {
    const trace::Watch::Use use(watch);
    if (!session.folder.empty()) watch.stop();  // else it is the launcher's
    remove_ring(session, use.get() != nullptr ? use.get()->path() : "");
  }
  watch.sessions().drop(&group);
}

/// What no collective call has written, one rank after the other: by the lowest rank that ends here, and once more by the
/// last.
void write_rest(const trace::Session& session, const bootstrap::Member& self, int32_t number) {
  const std::string lock_path = session.folder + "/lock";
  const os::Fd lock = os::open_own_file(lock_path, O_RDWR | O_CREAT, 0600);
  if (!lock.is_open() && errno == ENOENT) return;  // the last one was here
  if (!lock.is_open()) throw os::file_error("open", lock_path, errno);
  os::lock_file(lock, lock_path, kLockMs);
  const std::vector<trace::RingHead::Owner> owners = trace::read_owners(session.folder);
  bool is_last = true, is_lowest = !owners.empty();  // none: the last one was here, except for this lock
  for (const trace::RingHead::Owner& owner : owners) {
    if (!may_go_on(owner, self)) continue;
    is_last = false;
    is_lowest = is_lowest && number < owner.rank;
  }
  if (is_lowest) trace::merge_to(session.path, trace::read_rings(session.folder));
  std::error_code ignored;
  if (is_last) std::filesystem::remove_all(session.folder, ignored);
}

/// The group ends, and did not stop its trace, or is broken: the events on this machine are written, by the first rank here
/// that ends.
void end_trace(Group& group) noexcept {
  trace::Watch* const watch = group.calls().watch();
  if (watch == nullptr) return;
  const bootstrap::Member& self = group.control().member(group.rank());
  std::optional<trace::Session> session = watch->sessions().of(&group);
  watch->sessions().drop(&group);
  // A trace in parallel with the launcher's has no folder.
  if (session && session->folder.empty()) session.reset();
  if (!session && self.world_rank < 0) session = watch->sessions().take_launchers();
  if (!session) return;
  const trace::Watch::Use use(*watch);
  if (!group.health().has_fault()) settle_gpu_times(group);  // else the device may never come to an end
  watch->stop();
  trace::Recorder* const recorder = use.get();
  if (recorder == nullptr) return;
  recorder->end();
  if (session->folder.empty()) return;
  const std::optional<Error> failed = try_to([&] { write_rest(*session, self, recorder->rank()); });
  if (failed) os::log_of(*failed, DDP_LOG_WARNING, "the trace %s is not written: %s", session->path.c_str(), failed->what());
}

trace::Watch& watch_of(Group& group) {
  if (group.calls().watch() == nullptr) group.calls().set_watch(std::make_shared<trace::Watch>());
  Ending::begin_with(group, end_trace);
  return *group.calls().watch();
}

/// Events are recorded from here on, into a file of this folder.
void record(Group& group, const std::string& folder, int32_t number, int64_t events) {
  const bootstrap::Member& member = group.control().member(group.rank());
  trace::Recorder::Settings settings{events, number, group.size(), member.host, member.boot_id};
  auto recorder = trace::Recorder::make(trace::ring_path(folder, number), settings);
  for (int32_t call = 1; call <= static_cast<int32_t>(bootstrap::kLastUserCall); ++call)
    recorder->name("c " + std::to_string(call) + " " + bootstrap::name_of(static_cast<UserCall>(call)));
  watch_of(group).start(std::move(recorder));
}

bool is_on_several_hosts(Group& group) {
  for (int32_t rank = 1; rank < group.size(); ++rank)
    if (group.control().member(rank).boot_id != group.control().member(0).boot_id) return true;
  return false;
}

/// What began before the trace did is no part of it.
trace::Ring since(trace::Ring ring, int64_t begin_ns) {
  std::erase_if(ring.events, [&](const trace::Event& event) { return event.end_ns < begin_ns; });
  return ring;
}

/// A rank's announcement about its ring.
struct Place {
  std::string path;
  int64_t bytes = 0;  // 0: it has none
  int64_t begin_ns = 0;
  std::string becomes;  // the file of the trace
};

/// A new rank 0 did not get it when the trace began.
std::string path_of(const std::vector<Place>& places) {
  return std::find_if(places.begin(), places.end(), [](const Place& place) { return place.bytes > 0; })->becomes;
}

std::optional<trace::Ring> read_here(const Place& place, const bootstrap::Member& owner) {
  std::optional<trace::Ring> ring;
  static_cast<void>(try_to([&] {
    const os::Fd fd = os::open_file(AT_FDCWD, place.path.c_str(), O_RDONLY | O_CLOEXEC, 0);
    if (!fd.is_open()) return;
    std::string bytes(static_cast<size_t>(place.bytes), '\0');
    bytes.resize(static_cast<size_t>(os::read_at(fd.get(), 0, bytes.data(), place.bytes, place.path)));
    ring = trace::read_ring(bytes);
    if (ring && (ring->owner.pid != owner.pid || owner.boot_id.substr(0, 63) != ring->owner.boot)) ring.reset();
  }));
  return ring;
}

std::vector<Place> exchange_places(Group& group, const trace::Recorder* recorder,
                                   const std::optional<trace::Session>& session) {
  ByteWriter mine;
  mine.text(recorder != nullptr ? recorder->path() : "");
  mine.number(recorder != nullptr ? recorder->size() : int64_t{0});
  mine.number(session ? session->begin_ns : int64_t{0});
  mine.text(session ? session->path : "");
  std::vector<Place> places;
  for (const std::string& text : group.gather("traces", mine.bytes())) {
    ByteReader theirs(text);
    Place place;
    place.path = theirs.text();
    place.bytes = theirs.number<int64_t>();
    place.begin_ns = theirs.number<int64_t>();
    place.becomes = theirs.text();
    places.push_back(std::move(place));
  }
  return places;
}

/// Rank 0 reads the rings that it can see, and gets the others.
std::vector<trace::Ring> collect(Group& group, const trace::Recorder* own, const std::vector<Place>& places) {
  std::vector<trace::Ring> rings;
  std::string missing(places.size(), '0');
  for (size_t rank = 0; group.rank() == 0 && rank < places.size(); ++rank) {
    if (places[rank].bytes == 0) continue;
    std::optional<trace::Ring> ring = read_here(places[rank], group.control().member(static_cast<int32_t>(rank)));
    if (ring)
      rings.push_back(since(std::move(*ring), places[rank].begin_ns));
    else
      missing[rank] = '1';
  }
  missing = group.gather("missing traces", missing)[0];
  for (size_t rank = 0; rank < places.size(); ++rank) {
    if (missing[rank] != '1') continue;
    const auto root = static_cast<int32_t>(rank);
    const auto size = static_cast<size_t>(places[rank].bytes);
    std::string bytes = root == group.rank() ? own->copy(places[rank].bytes) : std::string(size, '\0');
    group.broadcast(flat_tensor(bytes.data(), DDP_U8, places[rank].bytes), root);
    std::optional<trace::Ring> ring = group.rank() == 0 ? trace::read_ring(bytes) : std::nullopt;
    if (ring) rings.push_back(since(std::move(*ring), places[rank].begin_ns));
  }
  return rings;
}

/// The launcher's trace, from here to the end of the group.
void start_for_launcher(Group& group, const std::string& path, const char* watched, int32_t number) {
  const bootstrap::Member& self = group.control().member(group.rank());
  const std::optional<Error> failed = try_to([&] {
    trace::Session session{&group, path, watched != nullptr ? "" : path + kRings, os::now_ns()};
    if (watched == nullptr) os::make_own_folder(session.folder);
    for (const trace::RingHead::Owner& owner : trace::read_owners(session.folder))
      if (owner.pid == self.pid && owner.rank == number && may_go_on(owner, self)) return;  // another group of the process
    record(group, watched != nullptr ? watched : session.folder, number, trace::kDefaultEvents);
    group.calls().watch()->sessions().set_launchers(session);
  });
  if (failed) os::log_of(*failed, DDP_LOG_WARNING, "this rank is not traced (DDP_TRACE): %s", failed->what());
}

}  // namespace

void tell_place(Group& group, int64_t generation) {
  int32_t transports = 0;
  if (group.size() > 1) {
    const collective::Transport& transport = group.channels().first();
    if (const auto arena = transport.arena(); arena != nullptr && arena->is_shared()) transports |= trace::kSharedMemory;
    if (transport.backend() == DDP_BACKEND_GLOO) transports |= trace::kGloo;
    if (group.gpu_side().is_connected()) transports |= trace::kNccl;
  }
  group.calls().watch()->regroup(group.rank(), group.size(), generation, transports);
}

/// What the program has logged, and what it will log, is seen too.
void show_program_numbers(const std::string& page_path) noexcept {
  const std::optional<Error> failed = try_to([&] { trace::ProgramNumbers::instance().attach(page_path); });
  if (failed)
    os::log(DDP_LOG_WARNING, "numbers of ddp_group_log_metric cannot be written in DDP_WATCH_DIR: %s", failed->what());
}

void follow_launcher(Group& group, int64_t generation, const std::string& name) {
  const char *const folder = secure_getenv("DDP_WATCH_DIR"), *const path = secure_getenv("DDP_TRACE");
  const char* const known = secure_getenv("RANK");
  const bool is_watched = folder != nullptr && *folder != '\0', is_traced = path != nullptr && *path != '\0';
  if (!is_watched && !is_traced) return;
  const int32_t number = known == nullptr ? group.rank() : static_cast<int32_t>(std::strtol(known, nullptr, 10));
  if (number != group.rank() && group.options().join == 0) return;  // not the launcher's group
  const std::string& host = group.control().member(group.rank()).host;
  auto live = trace::Watch::live_of_launcher(folder, number, host, group.size());
  if (is_watched && live == nullptr) return;  // another group of the process is watched
  if (live != nullptr) {
    live->set_group(name);
    show_program_numbers(trace::live_path(folder, number));
  }
  group.calls().set_watch(std::make_shared<trace::Watch>(std::move(live)));
  Ending::begin_with(group, end_trace);
  tell_place(group, generation);
  // A launcher that wants the rings themselves names a file in the folder that it watches.
  const bool wants_rings = is_watched && is_traced && std::string_view(path).starts_with(std::string(folder) + "/");
  if (is_traced) start_for_launcher(group, path, wants_rings ? folder : nullptr, number);
}

void start_trace(Group& group, const std::string& path, const TraceSettings& settings) {
  group.check_idle(kStart);
  const bootstrap::CallState::In inside(group.calls(), bootstrap::UserCall::kStartTrace);
  trace::Watch& watch = watch_of(group);
  trace::Session session{&group, path, "", os::now_ns()};
  bool claimed = false;
  const auto begin = [&] {
    // All learn the path: rank 0 may die.
    session.path = all_or_none(group, "trace", [&]() -> std::string {
      std::string other;
      claimed = watch.sessions().claim(session, other);
      if (claimed) return path;
      throw make_error(DDP_ERROR_INVALID_STATE, "%s: a trace is on already%s%s; its group has to stop it first", kStart,
                       other.empty() ? "" : ", for ", other.c_str());
    })[0];
    const bool begins = !watch.is_on();
    all_or_none(group, "trace begins", [&] {
      if (session.path.empty()) throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: path is NULL or empty on rank 0", kStart);
      if (!begins) return;
      session.folder = session.path + kRings;
      os::make_own_folder(session.folder);
      record(group, session.folder, group.rank(), settings.events);
    });
  };
  on_error(begin, [&](const Error&) {
    if (claimed) forget(group, session);
  });
  watch.sessions().set(session);
  time_gpu(group);
  for (int round = 0; is_on_several_hosts(group) && round < kClockRounds; ++round)
    static_cast<void>(group.gather("clocks", ""));
}

void stop_trace(Group& group) {
  group.check_idle(kStop);
  const bootstrap::CallState::In inside(group.calls(), bootstrap::UserCall::kStopTrace);
  trace::Watch* const watch = group.calls().watch();
  const std::optional<trace::Session> session = watch != nullptr ? watch->sessions().of(&group) : std::nullopt;
  std::optional<trace::Watch::Use> use;
  if (session) use.emplace(*watch);
  const trace::Recorder* const own = use ? use->get() : nullptr;
  if (own != nullptr) settle_gpu_times(group);
  const std::vector<Place> places = exchange_places(group, own, session);
  if (std::all_of(places.begin(), places.end(), [](const Place& place) { return place.bytes == 0; }))
    throw make_error(DDP_ERROR_INVALID_STATE, "%s: no trace is on; ddp_group_start_trace starts one", kStop).as_agreed();
  std::vector<trace::Ring> rings = collect(group, own, places);
  const std::optional<Error> failed = try_to([&] {
    all_or_none(group, "trace file", [&] {
      if (group.rank() == 0) trace::merge_to(path_of(places), std::move(rings));
    });
  });
  if (failed && breaks_group(failed->status())) throw Error(*failed);
  if (session) forget(group, *session);
  if (failed) throw Error(*failed);
}

}  // namespace ddp::group
