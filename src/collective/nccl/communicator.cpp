#include "collective/nccl/communicator.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "core/attempt.hpp"
#include "core/error.hpp"
#include "os/thread.hpp"

namespace ddp::nccl {
namespace {

constexpr int64_t kAbortLimitMs = 1000;  // for a thread that makes a communicator to notice that it was aborted

}  // namespace

/// What threads share that nobody may be able to wait for.
struct Communicator::Link {
  explicit Link(const ddp_nccl_table& nccl) : table(nccl) {}

  const ddp_nccl_table& table;
  std::mutex calling;    // NCCL takes one thread at a time
  void* comm = nullptr;  // written by NCCL while it connects
  std::atomic<bool> usable{false};
  std::set<void*> memory;  // from alloc; guarded by `calling`

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool returned = false;  // the thread that connects, or closes
  int32_t result = 0;

  void report(int32_t code) {
    {
      const std::lock_guard lock(mutex);
      returned = true;
      result = code;
    }
    changed.notify_all();
  }
  [[nodiscard]] bool wait_ms(int64_t ms) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::milliseconds(ms), [this] { return returned; });
  }
  [[nodiscard]] void* handle() const noexcept { return __atomic_load_n(&comm, __ATOMIC_ACQUIRE); }
};

std::string Communicator::make_id(const ddp_nccl_table& table) {
  std::array<char, DDP_NCCL_ID_BYTES> id{};
  const int32_t code = table.get_unique_id(id.data());
  if (code != 0)
    throw make_error(DDP_ERROR_NOT_SUPPORTED, "NCCL cannot start: %s (%s)", table.error_text(code),
                     table.last_error(nullptr));
  return std::string(id.data(), id.size());
}

Communicator::Communicator(const gpu::Device& device, const ddp_nccl_table& table, const Place& place, os::Deadline deadline)
    : device_(device), link_(std::make_shared<Link>(table)) {
  const ddp_gpu_table& runtime = device.table();
  std::thread connects = os::start_thread("ddp-nccl-init", [link = link_, place, &runtime, index = device.index()] {
    int32_t code = runtime.set_device(index);
    code = link->table.comm_init(&link->comm, place.size, place.id.data(), place.rank, place.name.c_str(), 0);
    link->report(code);
  });
  const int64_t left = deadline.is_never() ? INT64_MAX / 2'000'000 : deadline.left_ms();
  if (link_->wait_ms(left)) {
    connects.join();
  } else {
    if (void* const half_made = link_->handle()) static_cast<void>(table.comm_abort(half_made));
    if (link_->wait_ms(kAbortLimitMs))
      connects.join();
    else
      connects.detach();  // it owns what it uses
    throw make_error(
        DDP_ERROR_TIMED_OUT,
        "NCCL did not connect the %d ranks in time: %s; a firewall or a wrong NCCL_SOCKET_IFNAME is the usual cause "
        "(NCCL_DEBUG=INFO says more), and the process must be restarted",
        place.size, table.last_error(nullptr));
  }
  if (link_->result != 0)
    throw make_error(table.error_kind(link_->result) == DDP_NCCL_REMOTE ? DDP_ERROR_PEER_FAILED : DDP_ERROR_NOT_SUPPORTED,
                     "NCCL could not connect the ranks: %s (%s)", table.error_text(link_->result),
                     table.last_error(nullptr));
  link_->usable.store(true);
}

Communicator::~Communicator() { abort(); }

const ddp_nccl_table& Communicator::table() const noexcept { return link_->table; }

template <class Call>
void Communicator::call(const char* doing, Call&& body) {
  const gpu::Device::Current current(device_);
  const std::lock_guard lock(link_->calling);
  if (!link_->usable.load()) throw make_error(DDP_ERROR_ABORTED, "NCCL was ended before %s", doing);
  const int32_t code = body(link_->table, link_->comm);
  if (code != 0)
    throw make_error(DDP_ERROR_PEER_FAILED, "NCCL failed on %s while %s: %s (%s)", device_.name().c_str(), doing,
                     link_->table.error_text(code), link_->table.last_error(link_->comm));
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

void* Communicator::alloc(int64_t bytes) {
  void* memory = nullptr;
  call("allocating memory", [&](const ddp_nccl_table& nccl, void*) {
    if (nccl.mem_alloc(&memory, bytes) != 0)
      throw make_error(DDP_ERROR_OUT_OF_MEMORY, "%s has no %lld bytes left for the group's memory", device_.name().c_str(),
                       static_cast<long long>(bytes));
    link_->memory.insert(memory);
    return 0;
  });
  return memory;
}

bool Communicator::owns(void* memory) noexcept {
  const std::lock_guard lock(link_->calling);
  return link_->memory.count(memory) != 0;
}

bool Communicator::free(void* memory) noexcept {
  const std::lock_guard lock(link_->calling);
  if (link_->memory.erase(memory) == 0) return false;
  static_cast<void>(link_->table.mem_free(memory));
  return true;
}

std::string Communicator::trouble() const noexcept {
  if (!link_->usable.load()) return "";
  int32_t result = 0;
  const int32_t code = link_->table.comm_async_error(link_->comm, &result);
  const int32_t bad = code != 0 ? code : result;
  const int32_t kind = link_->table.error_kind(bad);
  if (kind == DDP_NCCL_OK || kind == DDP_NCCL_IN_PROGRESS) return "";
  return std::string(link_->table.error_text(bad)) + " (" + link_->table.last_error(link_->comm) + ")";
}

void Communicator::abort() noexcept {
  if (!link_->usable.exchange(false)) return;
  // A thread may be stuck inside NCCL; the abort is what frees it.
  std::unique_lock lock(link_->calling, std::defer_lock);
  for (int64_t waited_ms = 0; !lock.try_lock() && waited_ms < kAbortLimitMs; ++waited_ms)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  static_cast<void>(link_->table.comm_abort(link_->comm));
}

void Communicator::close(int64_t limit_ms) noexcept {
  if (!link_->usable.exchange(false)) return;
  link_->returned = false;
  const auto end = [link = link_, &runtime = device_.table(), index = device_.index()] {
    static_cast<void>(runtime.set_device(index));
    static_cast<void>(link->table.comm_finalize(link->comm));
    link->report(link->table.comm_destroy(link->comm));
  };
  std::thread ends;
  if (try_to([&] { ends = os::start_thread("ddp-nccl-end", end); })) {  // no thread is left for it
    static_cast<void>(link_->table.comm_abort(link_->comm));
    return;
  }
  if (link_->wait_ms(limit_ms)) {
    ends.join();
    return;
  }
  ends.detach();  // it owns what it uses
}

}  // namespace ddp::nccl
