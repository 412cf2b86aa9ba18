// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/device.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <memory>
#include <thread>
#include <utility>

#include "core/attempt.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"
#include "os/clock.hpp"
#include "os/log.hpp"
#include "os/thread.hpp"

namespace ddp::gpu {
namespace {

constexpr int64_t kAgainMs = 5;  // for a device that was not idle in time when it was waited for last
constexpr auto kLook = std::chrono::milliseconds(10);

/// What is left behind.
struct Wait {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool is_over = false;
  bool is_idle = false;
};

/// A lost device does nothing any more.
bool is_done(const ddp_gpu_table& table) noexcept {
  const int32_t code = table.synchronize();
  return code == 0 || table.error_kind(code) != DDP_GPU_CAPTURE;
}

}  // namespace

void FreeGuard::ask(std::function<bool()> ends) {
  const std::lock_guard lock(mutex_);
  ends_ = std::move(ends);
}

void FreeGuard::ask_last(const std::function<bool()>& ends, const std::string& device, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  ends_ = nullptr;
  hangs_ = !ends();
  tell(std::exchange(stuck_, hangs_), device, owner);
}

bool FreeGuard::may_free(const std::string& device, const std::string& owner) noexcept {
  const std::lock_guard lock(mutex_);
  const bool was_stuck = stuck_;
  if (ends_) hangs_ = !ends_();
  stuck_ = hangs_ || !becomes_idle(was_stuck);
  tell(was_stuck, device, owner);
  return !stuck_;
}

void FreeGuard::tell(bool was_stuck, const std::string& device, const std::string& owner) const noexcept {
  if (stuck_ && !was_stuck)
    os::log(DDP_LOG_WARNING, "%s works on something that does not end; what %s has in its memory is left to the process",
            device.c_str(), owner.c_str());
}

bool FreeGuard::becomes_idle(bool was_stuck) const noexcept {
  std::shared_ptr<Wait> wait;
  std::thread waits;
  const auto start = [&] {
    wait = std::make_shared<Wait>();
    waits = os::start_thread("ddp-gpu-idle", [wait, &table = table_, index = index_] {
      static_cast<void>(table.relax_capture());
      static_cast<void>(table.set_device(index));
      const bool is_idle = is_done(table);
      const std::lock_guard lock(wait->mutex);
      wait->is_over = true;
      wait->is_idle = is_idle;
      wait->changed.notify_all();
    });
  };
  if (try_to(start)) return is_done(table_);  // no thread is left for it
  std::unique_lock lock(wait->mutex);
  const int64_t begin = os::now_ns();
  const auto is_late = [&] { return (os::now_ns() - begin) / 1'000'000 >= (was_stuck ? kAgainMs : limit_ms_.load()); };
  while (!wait->is_over && !is_late()) wait->changed.wait_for(lock, kLook, [&] { return wait->is_over; });
  const bool is_over = wait->is_over;
  const bool is_idle = wait->is_idle;
  lock.unlock();
  is_over ? waits.join() : waits.detach();
  return is_idle;
}

Device::Device(const ddp_gpu_table& table, int32_t index, const std::string& owner)
    : table_(table), index_(index), owner_(owner), frees_(table, index) {
  name_ = "GPU " + std::to_string(index);
  std::array<char, 256> text{};
  if (table.device_name(index, text.data(), static_cast<int64_t>(text.size())) == 0)
    name_ += std::string(" (") + text.data() + ")";
  const Current current(*this);
  check(table_.load_kernels(), "loading the kernels");
}

void Device::fail(int32_t code, const char* doing) const {
  const std::string said = std::string(table_.error_text(code)) + " (" + table_.error_name(code) + ")";
  switch (table_.error_kind(code)) {
    case DDP_GPU_OUT_OF_MEMORY:
      throw make_error(DDP_ERROR_OUT_OF_MEMORY, "%s has no memory left while %s", name_.c_str(), doing);
    case DDP_GPU_BAD_ARGUMENT:
      throw make_error(DDP_ERROR_INVALID_ARGUMENT,
                       "%s refused an argument while %s: %s; streams and tensors must belong to this device and still exist",
                       name_.c_str(), doing, said.c_str());
    case DDP_GPU_CAPTURE:
      throw make_error(DDP_ERROR_INVALID_STATE, "%s: %s is not possible while a stream is captured into a CUDA graph: %s",
                       name_.c_str(), doing, said.c_str());
    case DDP_GPU_NO_CODE:
      throw make_error(DDP_ERROR_NOT_SUPPORTED,
                       "the CUDA module has no code for %s: %s while %s; build libddp on a machine with such a GPU, or with "
                       "-DDDP_CUDA_ARCHITECTURES=shipped for all GPUs",
                       name_.c_str(), said.c_str(), doing);
    case DDP_GPU_NOT_READY:
    case DDP_GPU_LOST:
    case DDP_GPU_NO_DRIVER:
    case DDP_GPU_NO_DEVICE:
      throw make_error(DDP_ERROR_PEER_FAILED,
                       "%s lost its %s while %s: %s; CUDA cannot recover in this process, so restart it",
                       owner_.text()->c_str(), name_.c_str(), doing, said.c_str());
    default: throw make_error(DDP_ERROR_INTERNAL, "%s failed while %s: %s", name_.c_str(), doing, said.c_str());
  }
}

void Device::synchronize() const {
  const Current current(*this);
  check(table_.synchronize(), "waiting for the device");
}

void Device::synchronize(void* stream) const {
  const Current current(*this);
  check(table_.stream_synchronize(stream), "waiting for a stream");
}

bool Device::is_capturing(void* stream) const {
  const Current current(*this);
  int32_t capturing = 0;
  check(table_.stream_is_capturing(stream, &capturing), "looking at a stream");
  return capturing != 0;
}

void Device::refuse_capture(void* stream, const char* function, const char* why) const {
  if (is_capturing(stream))
    throw make_error(
        DDP_ERROR_INVALID_STATE,
        "%s: the stream is being captured into a CUDA graph, which cannot hold this call because %s; call it outside",
        function, why);
}

void Device::copy(void* to, const void* from, int64_t bytes, void* stream) const {
  if (bytes == 0) return;
  const Current current(*this);
  check(table_.copy(to, from, bytes, stream), "copying");
}

void Device::zero(void* memory, int64_t bytes, void* stream) const {
  if (bytes == 0) return;
  const Current current(*this);
  check(table_.fill(memory, 0, bytes, stream), "writing zeros");
}

void Device::within(const std::function<void()>& body) const {
  const Current current(*this);
  body();
}

device::Memory Device::allocate(int64_t bytes, const char* what) const {
  if (bytes == 0) return {};
  const Current current(*this);
  void* memory = nullptr;
  const int32_t code = table_.alloc(&memory, bytes);
  if (code != 0 && table_.error_kind(code) == DDP_GPU_OUT_OF_MEMORY)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "%s has no %lld bytes left for %s", name_.c_str(),
                     static_cast<long long>(bytes), what);
  check(code, "allocating memory");
  device::Memory made(*this, memory);
  zero(memory, bytes, nullptr);
  synchronize(nullptr);
  return made;
}

void Device::free(void* memory) const noexcept {
  const Current current(*this, std::nothrow);
  if (!frees_.may_free(name_, *owner_.text())) return;
  static_cast<void>(table_.free(memory));
}

void Device::apply(const device::Operation& operation, const device::Span* spans, int64_t count, ddp_dtype from_dtype,
                   ddp_dtype to_dtype, const device::Order& order) const {
  using Kind = device::Operation::Kind;
  if (operation.kind == Kind::kCopy && !is_floating(to_dtype))
    return copy_bytes(spans, count, to_dtype, operation.doing, order);
  const Timed timed(*this, order.stream, trace::GpuWork::kCopy);
  const double factor = operation.kind == Kind::kScale ? operation.number : 1.0;
  const double limit = operation.kind == Kind::kLimit ? operation.number : std::numeric_limits<double>::infinity();
  const Current current(*this);
  check(operation.kind == Kind::kSwap
            ? table_.exchange(spans, count, order.stream)
            : table_.move(spans, count, from_dtype, to_dtype, factor, limit, order.stop, order.stream),
        operation.doing);
}

void Device::copy_bytes(const device::Span* spans, int64_t count, ddp_dtype dtype, const char* doing,
                        const device::Order& order) const {
  std::vector<device::Span> bytes(spans, spans + count);
  for (device::Span& span : bytes) span.count *= dtype_size(dtype);
  const Timed timed(*this, order.stream, trace::GpuWork::kCopy);
  const Current current(*this);
  check(table_.copy_bytes(bytes.data(), count, order.stop, order.stream), doing);
}

void Device::follow(const device::Span* spans, int64_t count, const double* decays, int32_t decay_count, ddp_dtype dtype,
                    const device::Order& order) const {
  const Timed timed(*this, order.stream, trace::GpuWork::kAverages);
  const Current current(*this);
  for (int32_t k = 0; k < decay_count; ++k)
    check(table_.ema(spans + k * count, count, dtype, decays[k], order.stop, order.stream), "updating averages");
}

void Device::hash(const device::Span* spans, int64_t count, void* scratch, uint64_t* out, void* stream) const {
  const Current current(*this);
  check(table_.hash(spans, count, static_cast<uint64_t*>(scratch), stream), "hashing tensors");
  copy(out, scratch, count * static_cast<int64_t>(sizeof(uint64_t)), stream);
  synchronize(stream);
}

void Device::update(const device::UpdateSpan<device::AdamRule>& updates, const device::GradShape& shape,
                    const device::Order& order) const {
  const Timed timed(*this, order.stream, trace::GpuWork::kStep);
  const Current current(*this);
  check(updates.planned != nullptr ? table_.planned_adam(updates.updates, updates.count, updates.planned, updates.rule_count,
                                                         updates.dtype, &shape, order.stop, order.stream)
                                   : table_.adam(updates.updates, updates.count, updates.rules, updates.rule_count,
                                                 updates.dtype, &shape, order.stop, order.stream),
        "updating parameters");
}

void Device::update(const device::UpdateSpan<device::SgdRule>& updates, const device::GradShape& shape,
                    const device::Order& order) const {
  const Timed timed(*this, order.stream, trace::GpuWork::kStep);
  const Current current(*this);
  check(updates.planned != nullptr ? table_.planned_sgd(updates.updates, updates.count, updates.planned, updates.rule_count,
                                                        updates.dtype, &shape, order.stop, order.stream)
                                   : table_.sgd(updates.updates, updates.count, updates.rules, updates.rule_count,
                                                updates.dtype, &shape, order.stop, order.stream),
        "updating parameters");
}

void require_on(const Device& device, const void* memory, const char* what) {
  const Device::Current current(device);
  int32_t found = -1;
  int32_t host_reads = 0;
  device.check(device.table().pointer_device(memory, &found, &host_reads), "looking at a pointer");
  if (found == device.index()) return;
  const std::string where = found < 0 ? "is no GPU memory" : "is memory of GPU " + std::to_string(found);
  throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s %s, but this rank works on %s", what, where.c_str(),
                   device.name().c_str());
}

Device::Current::Current(const Device& device) : device_(device) {
  int32_t before = -1;
  device_.check(device_.table_.get_device(&before), "asking for the current device");
  if (before == device_.index_) return;
  device_.check(device_.table_.set_device(device_.index_), "making the device current");
  before_ = before;
}

Device::Current::Current(const Device& device, std::nothrow_t) noexcept : device_(device) {
  int32_t before = -1;
  if (device.table_.get_device(&before) != 0 || before == device.index_) return;
  if (device.table_.set_device(device.index_) == 0) before_ = before;
}

Device::Current::~Current() {
  if (before_ < 0) return;
  int32_t used = 1;
  static_cast<void>(device_.table_.device_is_used(before_, &used));
  if (used != 0) static_cast<void>(device_.table_.set_device(before_));
}

Stream::Stream(const Device& device, Priority priority) : device_(device) {
  const Device::Current current(device);
  device.check(device.table().stream_create(&stream_, priority == Priority::kHigh ? 1 : 0), "making a stream");
}

Stream::~Stream() {
  const Device::Current current(device_, std::nothrow);
  static_cast<void>(device_.table().stream_destroy(stream_));
}

Event::Event(const Device& device) : device_(device) {
  const Device::Current current(device);
  device.check(device.table().event_create(&event_, 0), "making an event");
}

Event::~Event() {
  if (event_ == nullptr) return;
  const Device::Current current(device_, std::nothrow);
  static_cast<void>(device_.table().event_destroy(event_));
}

void Event::record(void* stream) const {
  const Device::Current current(device_);
  device_.check(device_.table().event_record(event_, stream), "recording an event on a stream");
}

void Event::hold_back(void* stream) const {
  const Device::Current current(device_);
  device_.check(device_.table().stream_wait(stream, event_), "making a stream wait");
}

void Event::synchronize() const {
  const Device::Current current(device_);
  device_.check(device_.table().event_synchronize(event_), "waiting for an event");
}

bool Event::is_done() const {
  const Device::Current current(device_);
  int32_t done = 0;
  device_.check(device_.table().event_query(event_, &done), "looking at an event");
  return done != 0;
}

Pinned::Pinned(const Device& device, int64_t bytes, const char* what) : device_(device) {
  const Device::Current current(device);
  const int32_t code = device.table().host_alloc(&host_, &on_device_, bytes);
  if (code != 0 && device.table().error_kind(code) == DDP_GPU_OUT_OF_MEMORY)
    throw make_error(DDP_ERROR_OUT_OF_MEMORY, "there are no %lld bytes of page-locked memory left for %s",
                     static_cast<long long>(bytes), what);
  device.check(code, "allocating page-locked memory");
}

Pinned::~Pinned() {
  const Device::Current current(device_, std::nothrow);
  if (!device_.frees().may_free(device_.name(), *device_.owner().text())) return;
  static_cast<void>(device_.table().host_free(host_));
}

}  // namespace ddp::gpu
