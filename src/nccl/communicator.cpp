// SPDX-License-Identifier: Apache-2.0
#include "nccl/communicator.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "core/attempt.hpp"
#include "core/error.hpp"
#include "os/at_exit.hpp"
#include "os/thread.hpp"

namespace ddp::nccl {
namespace {

constexpr int64_t kAbortLimitMs = 1000;  // for threads inside to leave, and then for NCCL
constexpr int64_t kLookMs = 1;
constexpr int64_t kLookAtEndMs = 10;
constexpr int64_t kLooksAtOnce = 100;  // at a call under way, before the thread pauses between looks
constexpr int64_t kPauseUs = 20;

}  // namespace

/// Data that threads share which may have to be left behind.
struct Communicator::Link {
  explicit Link(const ddp_nccl_table& nccl) : table(nccl) {}

  const ddp_nccl_table& table;
  bool lent = false;     // its owner ends it
  std::mutex calling;    // NCCL takes one thread at a time
  void* comm = nullptr;  // written by NCCL while it connects
  std::atomic<bool> usable{false};
  std::atomic<bool> gives_up{false};  // the orderly end

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool returned = false;  // the thread that connects, or closes
  bool left = false;      // was that thread left behind?
  int32_t result = 0;

  /// False: there is no receiver for it.
  bool report(int32_t code) {
    bool is_left = false;
    {
      const std::lock_guard lock(mutex);
      returned = true;
      result = code;
      is_left = left;
    }
    changed.notify_all();
    return !is_left;
  }
  /// False: the thread has returned.
  [[nodiscard]] bool leave() {
    const std::lock_guard lock(mutex);
    left = !returned;
    return left;
  }
  [[nodiscard]] bool wait_ms(int64_t ms) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::milliseconds(ms), [this] { return returned; });
  }
  [[nodiscard]] bool is_in_progress(int32_t code) const noexcept { return table.error_kind(code) == DDP_NCCL_IN_PROGRESS; }
  /// What has become of the call that returned `code`.
  [[nodiscard]] int32_t result_of(int32_t code) const noexcept {
    if (!is_in_progress(code)) return code;
    int32_t said = 0;
    const int32_t asked = table.comm_async_error(comm, &said);
    return asked != 0 ? asked : said;
  }

  /// Runs end(link) on a thread that has its device, and leaves it behind when `is_late` returns true.
  template <class End, class IsLate>
  static void end_unless(IsLate&& is_late, const std::shared_ptr<Link>& link, const gpu::Device& device, End end) {
    link->returned = false;
    std::thread ends;
    const auto start = [&] {
      auto hold = std::make_shared<os::HoldExit>();
      if (!*hold) return;  // exit() takes NCCL down
      ends = os::start_thread("ddp-nccl-end", [link, end, hold, &runtime = device.table(), index = device.index()] {
        static_cast<void>(runtime.set_device(index));
        end(*link);
        link->report(0);
      });
    };
    if (try_to(start)) return abort(*link);  // no thread is left for it
    if (!ends.joinable()) return;
    while (!link->wait_ms(kLookAtEndMs))
      if (is_late()) return ends.detach();  // it owns what it uses
    ends.join();
  }
  template <class End>
  static void end_within(int64_t limit_ms, const std::shared_ptr<Link>& link, const gpu::Device& device, End end) {
    end_unless([deadline = os::Deadline::in_ms(limit_ms)] { return deadline.passed(); }, link, device, end);
  }
  static void abort(Link& link) {
    if (const os::HoldExit hold; hold) static_cast<void>(link.table.comm_abort(link.comm));
  }
};

std::string Communicator::make_id(const ddp_nccl_table& table) {
  std::array<char, DDP_NCCL_ID_BYTES> id{};
  const int32_t code = table.get_unique_id(id.data());
  if (code != 0)
    throw make_error(DDP_ERROR_NOT_SUPPORTED, "NCCL cannot start: %s (%s)", table.error_text(code),
                     table.last_error(nullptr));
  return std::string(id.data(), id.size());
}

const ddp_nccl_table& Communicator::table() const noexcept { return link_->table; }

Communicator::Communicator(const gpu::Device& device, const ddp_nccl_table& table)
    : device_(device), link_(std::make_shared<Link>(table)) {}

void Communicator::connect(const Place& place, os::Deadline deadline, const std::function<void()>& check) {
  const ddp_gpu_table& runtime = device_.table();
  std::thread connects = os::start_thread("ddp-nccl-init", [link = link_, place, &runtime, index = device_.index()] {
    int32_t code = runtime.set_device(index);
    code = link->table.comm_init(&link->comm, place.size, place.id.data(), place.rank, place.name.c_str(), place.max_ctas);
    if (!link->report(code) && (code == 0 || link->is_in_progress(code))) Link::abort(*link);
  });
  const std::optional<Error> problem = try_to([&] { await_ranks(place, deadline, check); });
  const bool is_left = problem && link_->leave();
  if (is_left)
    connects.detach();  // inside NCCL, where a half-made communicator cannot be aborted; it ends what comes of it
  else
    connects.join();
  link_->usable.store(!problem);
  if (problem && !is_left && link_->comm != nullptr) Link::end_within(kAbortLimitMs, link_, device_, Link::abort);
  if (problem) throw Error(*problem);
}

Communicator::Communicator(const gpu::Device& device, const ddp_nccl_table& table, const Lent& lent, os::Deadline deadline,
                           const std::function<void()>& check)
    : device_(device), link_(std::make_shared<Link>(table)) {
  link_->comm = lent.comm;
  link_->lent = true;
  check_lent(lent);
  int32_t result = 0;
  int32_t code = 0;
  while (code = table.comm_async_error(lent.comm, &result), code == 0 && link_->is_in_progress(result)) {
    check();
    if (deadline.passed())
      throw Error(DDP_ERROR_TIMED_OUT,
                  "nccl_comm is in the middle of a call of the program, which does not come to its end");
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
  }
  if (code == 0) code = result;
  if (code != 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "nccl_comm has failed before it was lent: %s (%s)", table.error_text(code),
                     table.last_error(lent.comm));
  link_->usable.store(true);
}

void Communicator::check_lent(const Lent& lent) const {
  const ddp_nccl_table& table = link_->table;
  const gpu::Device::Current current(device_);
  int32_t size = -1;
  int32_t rank = -1;
  int32_t device = -1;
  int32_t code = table.comm_count(lent.comm, &size);
  if (code == 0) code = table.comm_user_rank(lent.comm, &rank);
  if (code == 0) code = table.comm_device(lent.comm, &device);
  if (code != 0)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "nccl_comm is no communicator of %s: %s (%s)", table.path,
                     table.error_text(code), table.last_error(nullptr));
  if (size != lent.size || rank != lent.rank)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                     "nccl_comm is rank %d of %d, but this is rank %d of a group of %d; lend a communicator of the same "
                     "ranks in the same order",
                     rank, size, lent.rank, lent.size);
  if (device != device_.index())
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "nccl_comm is on GPU %d, but this rank works on %s (option device_index)",
                     device, device_.name().c_str());
}

bool Communicator::is_inside_init() const {
  const std::lock_guard lock(link_->mutex);
  return !link_->returned;
}

/// Until all ranks have come.
void Communicator::await_ranks(const Place& place, os::Deadline deadline, const std::function<void()>& check) {
  const ddp_nccl_table& table = link_->table;
  int32_t result = 0;
  while (!link_->wait_ms(kLookMs) || (result = link_->result_of(link_->result), link_->is_in_progress(result))) {
    check();
    if (deadline.passed())
      throw make_error(
          DDP_ERROR_TIMED_OUT,
          "NCCL did not connect the %d ranks in time: %s; a firewall or a wrong NCCL_SOCKET_IFNAME is the usual cause "
          "(NCCL_DEBUG=INFO says more), and the process must be restarted",
          place.size, table.last_error(nullptr));
    std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
  }
  if (result != 0)
    throw make_error(table.error_kind(result) == DDP_NCCL_REMOTE ? DDP_ERROR_PEER_FAILED : DDP_ERROR_NOT_SUPPORTED,
                     "NCCL could not connect the ranks: %s (%s)", table.error_text(result), table.last_error(nullptr));
}

Communicator::~Communicator() { abort(); }

/// A collective.
template <class Call>
void Communicator::call(const char* doing, Call&& body) {
  std::optional<LaunchOrder::Turn> turn;
  if (order_ != nullptr) turn.emplace(*order_, link_->usable);
  call_alone(doing, body);
  if (turn) turn->done();
}

template <class Call>
void Communicator::call_alone(const char* doing, Call&& body) {
  const gpu::Device::Current current(device_);
  const std::lock_guard lock(link_->calling);
  if (!link_->usable.load()) fail_ended("before", doing);
  int32_t code = body(link_->table, link_->comm);
  const os::Deadline deadline = link_->is_in_progress(code) ? os::Deadline::in_ms(timeout_ms_) : os::Deadline::never();
  for (int64_t looks = 0; link_->is_in_progress(code); ++looks) {
    if (!link_->usable.load()) fail_ended("while", doing);
    if (!is_settled_ && check_) check_();
    if (deadline.passed()) fail_late(doing);
    if (looks >= kLooksAtOnce) std::this_thread::sleep_for(std::chrono::microseconds(kPauseUs));
    code = link_->result_of(code);
  }
  if (code != 0)
    throw make_error(DDP_ERROR_PEER_FAILED, "%s: NCCL failed on %s while %s: %s (%s)", device_.owner().text()->c_str(),
                     device_.name().c_str(), doing, link_->table.error_text(code), link_->table.last_error(link_->comm));
}

void Communicator::fail_ended(const char* when, const char* doing) const {
  if (check_) check_();
  throw make_error(DDP_ERROR_ABORTED, "NCCL was ended %s %s", when, doing);
}

void Communicator::fail_late(const char* doing) const {
  throw make_error(DDP_ERROR_TIMED_OUT,
                   "%s: NCCL has been %s on %s for %lld ms (timeout_ms): another rank has not come to the same call, or its "
                   "GPU or connection does not answer",
                   device_.owner().text()->c_str(), doing, device_.name().c_str(), static_cast<long long>(timeout_ms_));
}

void Communicator::all_reduce(const void* send, void* receive, int64_t count, ddp_dtype dtype, int32_t reduce,
                              void* stream) {
  call("reducing", [=](const ddp_nccl_table& nccl, void* comm) {
    return nccl.all_reduce(send, receive, count, dtype, reduce, comm, stream);
  });
}

void Communicator::reduce_scatter(const void* send, void* receive, int64_t receive_count, ddp_dtype dtype, int32_t reduce,
                                  void* stream) {
  call("reducing to slices", [=](const ddp_nccl_table& nccl, void* comm) {
    return nccl.reduce_scatter(send, receive, receive_count, dtype, reduce, comm, stream);
  });
}

void Communicator::all_gather(const void* send, void* receive, int64_t send_count, ddp_dtype dtype, void* stream) {
  call("gathering", [=](const ddp_nccl_table& nccl, void* comm) {
    return nccl.all_gather(send, receive, send_count, dtype, comm, stream);
  });
}

void Communicator::broadcast(const void* send, void* receive, int64_t count, ddp_dtype dtype, int32_t root, void* stream) {
  call("broadcasting", [=](const ddp_nccl_table& nccl, void* comm) {
    return nccl.broadcast(send, receive, count, dtype, root, comm, stream);
  });
}

void Communicator::run(const BlockCollective& collective, std::byte* block, int32_t rank, void* stream) {
  const auto [kind, count, dtype] = collective;
  std::byte* const own = block + rank * collective.bytes();
  switch (kind) {
    case BlockCollective::Kind::kAllReduce: return all_reduce(block, block, count, dtype, DDP_GPU_SUM, stream);
    case BlockCollective::Kind::kReduceScatter: return reduce_scatter(block, own, count, dtype, DDP_GPU_SUM, stream);
    case BlockCollective::Kind::kAllGather: return all_gather(own, block, count, dtype, stream);
  }
}

void Communicator::exchange(const std::vector<Transfer>& transfers, void* stream) {
  call("exchanging slices", [&](const ddp_nccl_table& nccl, void* comm) {
    int32_t code = nccl.group_start();
    if (code != 0) return code;
    for (const Transfer& each : transfers) {
      if (code != 0) break;
      code = each.sends ? nccl.send(each.data, each.count, each.dtype, each.peer, comm, stream)
                        : nccl.receive(each.data, each.count, each.dtype, each.peer, comm, stream);
      if (link_->is_in_progress(code)) code = 0;  // the end of the group has the result
    }
    const int32_t ended = nccl.group_end();
    return code != 0 ? code : ended;
  });
}

/// NCCL reports only that CUDA failed. So the same amount is requested from the runtime, whose error has the reason; if it
/// succeeds, it is NCCL's own failure.
void Communicator::fail_alloc(int32_t code, int64_t bytes) const {
  const ddp_gpu_table& runtime = device_.table();
  void* plain = nullptr;
  const int32_t asked = runtime.alloc(&plain, bytes);
  if (asked != 0 && runtime.error_kind(asked) == DDP_GPU_OUT_OF_MEMORY)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "%s: %s has no %lld bytes left for the group's memory",
                     device_.owner().text()->c_str(), device_.name().c_str(), static_cast<long long>(bytes));
  device_.check(asked, "allocating the group's memory");
  static_cast<void>(runtime.free(plain));
  throw make_error(
      DDP_ERROR_INTERNAL,
      "%s: NCCL failed on %s while allocating %lld bytes of the group's memory, of which the GPU has enough: %s "
      "(%s)",
      device_.owner().text()->c_str(), device_.name().c_str(), static_cast<long long>(bytes), link_->table.error_text(code),
      link_->table.last_error(nullptr));
}

void* Communicator::alloc(int64_t bytes) {
  void* memory = nullptr;
  call_alone("allocating memory", [&](const ddp_nccl_table& nccl, void*) {
    if (const int32_t code = nccl.mem_alloc(&memory, bytes); code != 0) fail_alloc(code, bytes);
    return 0;
  });
  return memory;
}

std::string Communicator::trouble() const {
  const os::HoldExit hold;  // a thread that watches may outlive NCCL
  if (!hold || !link_->usable.load()) return "";
  int32_t result = 0;
  const int32_t code = link_->table.comm_async_error(link_->comm, &result);
  const int32_t bad = code != 0 ? code : result;
  const int32_t kind = link_->table.error_kind(bad);
  if (kind == DDP_NCCL_OK || kind == DDP_NCCL_IN_PROGRESS) return "";
  return std::string(link_->table.error_text(bad)) + " (" + link_->table.last_error(link_->comm) + ")";
}

void Communicator::leave() noexcept { link_->usable.store(false); }

void Communicator::abort() noexcept {
  if (!link_->usable.exchange(false)) return;
  // Threads that wait for a call of NCCL see that and leave.
  std::unique_lock lock(link_->calling, std::defer_lock);
  for (int64_t waited_ms = 0; !lock.try_lock() && waited_ms < kAbortLimitMs; ++waited_ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (!link_->lent) Link::end_within(kAbortLimitMs, link_, device_, Link::abort);
}

void Communicator::close(int64_t limit_ms, const std::function<bool()>& is_broken) noexcept {
  if (link_->lent) return abort();
  if (!link_->usable.exchange(false)) return;
  const auto end = [](Link& link) {
    int32_t code = link.table.comm_finalize(link.comm);
    while (link.is_in_progress(code) && !link.gives_up.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
      code = link.result_of(code);
    }
    link.is_in_progress(code) ? Link::abort(link) : static_cast<void>(link.table.comm_destroy(link.comm));
  };
  os::Deadline deadline = os::Deadline::in_ms(limit_ms);
  os::Deadline after_break = os::Deadline::never();
  const auto is_late = [&] {
    if (after_break.is_never() && is_broken()) after_break = os::Deadline::in_ms(kBrokenMs);
    if (!deadline.passed() && !after_break.passed()) return false;
    if (link_->gives_up.exchange(true)) return true;
    deadline = after_break = os::Deadline::in_ms(kAbortLimitMs);  // to abort, if it is not inside NCCL
    return false;
  };
  Link::end_unless(is_late, link_, device_, end);
}

}  // namespace ddp::nccl
