// SPDX-License-Identifier: Apache-2.0
// Communicators between threads of this process. Everything under the runtime's lock.
#pragma once

#include <algorithm>
#include <set>

#include "support/fake_gpu/runtime.hpp"

namespace ddp::test::fake_gpu {

/// What all ranks must agree on.
struct Spec {
  const char* name = nullptr;
  int64_t count = 0;  // elements: of the whole (all_reduce, broadcast) or of one rank
  int32_t dtype = 0;
  int32_t reduce = 0;
  int32_t root = 0;
};

/// Bytes to or from one other rank.
struct Transfer {
  int32_t peer = 0;
  bool sends = false;
  void* data = nullptr;
  int64_t bytes = 0;
};

struct Arrival {
  bool here = false;
  const void* send = nullptr;  // real addresses
  void* receive = nullptr;
  std::vector<Transfer> transfers;
};

/// One collective operation: its ranks' streams meet here.
struct Collective {
  Spec spec;           // of the first that came
  int32_t first = -1;  // who that was
  int32_t arrived = 0;
  bool agreed = true;
  bool done = false;
  std::vector<Arrival> ranks;
};

/// A rank's place.
struct Member {
  int32_t device = -1;  // -1: it has not come yet
  bool aborted = false;
};

/// What all ranks make together on their hosts.
struct Setup {
  std::string what;  // of the first that came
  int32_t here = 0;
};

/// The ranks that met by one id.
struct World {
  std::string name;  // for sentences
  int32_t size = 0;  // 0: no rank has come yet
  std::vector<Member> ranks;
  int32_t joined = 0;
  int32_t failure = kNcclOk;  // of all their comm_init
  std::map<uint64_t, std::shared_ptr<Collective>> running;
  std::map<uint64_t, int32_t> met;  // ranks whose host has come to a collective on registered memory
  std::map<uint64_t, Setup> setups;
  std::map<std::pair<int32_t, int32_t>, int32_t> links;  // between two ranks: how many of them have come to it

  [[nodiscard]] bool is_anyone_aborted() const {
    return std::any_of(ranks.begin(), ranks.end(), [](const Member& member) { return member.aborted; });
  }
};

enum class CommState { kInitializing, kReady, kFinalized, kGone };

struct Comm {
  void* handle = nullptr;
  int64_t number = 0;
  std::shared_ptr<World> world;
  int32_t rank = 0;
  int32_t device = 0;
  CommState state = CommState::kInitializing;
  bool aborted = false;
  int64_t looks = 0;         // at the last call, until it is over
  int32_t size_to_join = 0;  // of its world, which it has not joined yet
  int64_t joins_at_ms = 0;   // after it was made; below 0: never
  std::chrono::steady_clock::time_point made = std::chrono::steady_clock::now();
  uint64_t next = 0;                // number of its next collective
  uint64_t calls = 0;               // collectives that were asked for
  std::optional<uint64_t> meeting;  // the last of them in which the hosts meet
  int64_t pending = 0;              // collectives that are queued and not over
  std::thread::id user;             // the thread whose call is inside; none: no thread
  int64_t uses = 0;                 // of that thread: a group keeps them
  int64_t lookers = 0;              // threads inside comm_async_error
  std::string last_error;
  int32_t max_ctas = 0;
  uint64_t setups = 0;                 // that it has come to
  std::optional<uint64_t> setting_up;  // the last of them
  std::set<std::string> algorithms;    // that it has come to
  std::set<int32_t> peers;             // to which it has sent, or from which it has received

  /// Are there ranks whose hosts have not come to the setup, or to a connection?
  [[nodiscard]] bool is_setting_up() const {
    return (setting_up && world->setups[*setting_up].here < world->size) ||
           std::any_of(peers.begin(), peers.end(), [this](int32_t peer) { return world->links[link_to(peer)] < 2; });
  }
  [[nodiscard]] std::pair<int32_t, int32_t> link_to(int32_t peer) const { return std::minmax(rank, peer); }
  [[nodiscard]] bool is_meeting() const { return meeting && world->met[*meeting] < world->size; }
  [[nodiscard]] std::string name() const {
    return "communicator " + std::to_string(number) + " (rank " + std::to_string(rank) + " of " + world->name + ")";
  }
};

/// NULL: none, or one that was destroyed (a violation).
CommPtr comm_of(Runtime& r, void* handle);

/// A thread inside a communicator; another one at the same time is a violation.
void begin_use(Runtime& r, Lock& lock, Comm& comm, const char* name);
void end_use(Comm& comm);

/// Remembers the text for last_error, and returns the code.
int32_t fail(Comm& comm, int32_t code, const std::string& text);
void set_thread_error(const std::string& text);

/// As delay_nccl asks for. False: aborted or reset meanwhile.
bool delay(Runtime& r, Lock& lock, NcclCall call, const CommPtr& comm);

/// comm_async_error's result, if no call is under way.
int32_t async_result(const Runtime& r, const Comm& comm);
/// A call that returns before it is over, if options ask for that: kNcclInProgress. What comes meanwhile is a violation.
int32_t go_on(Runtime& r, Comm& comm, int32_t code);

/// Connects what the operation uses first (Options::nccl_connects). Ends when a rank aborts.
struct Request;
int32_t connect_for(Runtime& r, Lock& lock, const Request& request);

/// Not in a group: queues it. In a group: keeps it until group_end.
struct Request {
  Spec spec;
  CommPtr comm;
  StreamPtr stream;
  const void* send = nullptr;  // device addresses
  void* receive = nullptr;
  std::vector<Transfer> transfers;  // of sends and receives, which have nothing else
};
int32_t submit(Runtime& r, Request request);
/// The calling thread, between group_start and group_end.
bool in_group(const Runtime& r);

/// The sums and copies of a collective that all ranks have come to. Returns the error; empty: no error.
std::string compute(Collective& collective);

/// The name of the sends and receives of a group: they are one operation, to which all ranks must come.
inline constexpr const char* kTransfers = "nccl.transfers";

/// Bytes of a rank's input and output.
struct Extent {
  int64_t send, receive;
};
Extent extent_of(const Spec& spec, int32_t size);

void set_nccl_version(int32_t version);

}  // namespace ddp::test::fake_gpu
