// SPDX-License-Identifier: Apache-2.0
#include "nccl/engine.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "bootstrap/failure.hpp"
#include "control/consensus.hpp"
#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "core/error.hpp"
#include "device/gpu/module.hpp"
#include "nccl/communicator.hpp"
#include "nccl/connect.hpp"
#include "nccl/mean.hpp"
#include "nccl/tree_sum.hpp"
#include "os/at_exit.hpp"
#include "os/log.hpp"

namespace ddp::nccl {
namespace {

constexpr int64_t kFreeMs = 1000;    // for the device to be done with memory when the group is broken
constexpr int64_t kExitMs = 3'000;   // the same when the process ends
constexpr int64_t kIdleMs = 60'000;  // the same when it is whole, and timeout_ms is 0

/// For NCCL's orderly end: a node's ranks go through it together, which takes seconds on a loaded one.
int64_t close_limit_ms(int32_t ranks, int64_t timeout_ms) noexcept {
  const int64_t limit = std::min<int64_t>(60'000, 10'000 + 500 * int64_t{ranks});
  return timeout_ms > 0 ? std::min(limit, timeout_ms) : limit;
}

int64_t idle_limit_ms(int64_t timeout_ms) noexcept { return timeout_ms > 0 ? timeout_ms : kIdleMs; }

int32_t nccl_reduction(ddp_reduce op) noexcept {
  if (op == DDP_MIN) return DDP_GPU_MIN;
  if (op == DDP_PRODUCT) return DDP_GPU_PRODUCT;
  return op == DDP_MAX ? DDP_GPU_MAX : DDP_GPU_SUM;
}

}  // namespace

void check_reduction(const char* function, const Tensor& tensor, ddp_reduce op, bool reproducible) {
  if (op == DDP_PRODUCT && reproducible)
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "%s: %s cannot be multiplied there with the group option reproducible; reduce it in host memory",
                     function, describe(tensor).c_str());
  if (op == DDP_AVERAGE && !is_floating(tensor.dtype) && !reproducible)
    throw make_error(DDP_ERROR_NOT_SUPPORTED,
                     "%s: %s cannot be averaged there; take DDP_SUM and divide, reduce it in host memory, or set the group "
                     "option reproducible",
                     function, describe(tensor).c_str());
}

Engine::Engine(const collective::TransportContext& context, const gpu::Device& device, gpu::GivenMemory& memory,
               os::Deadline deadline)
    : context_(context), device_(device), memory_(memory), rank_(context.control->rank()), size_(context.control->size()) {
  const ddp_nccl_table* nccl = nullptr;
  device.frees().set_limit(idle_limit_ms(context.options.timeout_ms));
  const auto check = [&] { context.failure->check(); };
  const auto lend = [&] {
    nccl = &gpu::find_nccl(device.table());
    return std::make_shared<Communicator>(device, *nccl, Communicator::Lent{context.options.nccl_comm, rank_, size_},
                                          deadline, check);
  };
  const bool is_lent = context.options.nccl_comm != nullptr;
  LaunchCounts here;
  const auto prepare = [&] {
    stream_ = std::make_unique<gpu::Stream>(device, gpu::Stream::Priority::kHigh);
    device.timeline().name_stream(stream_->get(), trace::GpuRow::kCommunication);
    ordering_.event = std::make_unique<gpu::Event>(device);
    std::shared_ptr<Communicator> lent;
    if (is_lent) with_name(*context.control, [&] { lent = lend(); });
    if (size_ == 1) return std::string();
    stop_words_ = std::make_unique<StopWords>(device);
    if (context.options.reproducible != 0) tree_ = std::make_unique<TreeOrder>(device, rank_, size_);
    communicator_ = std::move(lent);
    if (!is_lent) nccl = &gpu::load_nccl(device.table());
    here = LaunchOrder::present(device.index());
    if (!here.empty() && !keeps_launch_order(nccl->library_version))
      with_name(*context.control, [&] { throw no_launch_order(device.name(), nccl->library_version); });
    Greeting mine;
    if (rank_ == 0 && !is_lent) mine.nccl_id = make_id(*context.control, *nccl);
    if (rank_ == 0) mine.group_id = new_group_id();
    for (const auto& other : here) mine.others.push_back(other->id);
    return bytes_of(mine);
  };
  if (size_ == 1) {
    static_cast<void>(prepare());
    return;
  }
  const std::vector<std::string> said = bootstrap::all_or_none(*context.control, "NCCL", deadline, prepare);
  const Greeting first = greeting_of(said.front());
  std::vector<std::vector<uint64_t>> others;
  others.reserve(said.size());
  for (const std::string& bytes : said) others.push_back(greeting_of(bytes).others);
  // All ranks are here, so from here on they have the same time.
  const os::Deadline connected_by = os::Deadline::in_ms(context.options.rendezvous_timeout_ms);
  if (!is_lent)
    communicator_ = connect_ranks(*context.control, device, *nccl,
                                  Communicator::Place{rank_, size_, first.nccl_id, "libddp", context.options.nccl_max_ctas},
                                  connected_by, check);
  order_ = std::make_unique<LaunchOrder>(device.index(), first.group_id, size_, here, others, check);
  watch_ = std::make_unique<Watch>(context, device.shared_from_this(), communicator_);
  device_.frees().ask([this] { return comes_to_an_end(os::Deadline::in_ms(idle_limit_ms(context_.options.timeout_ms))); });
  on_error([&] { try_out(connected_by); },
           [this](const Error&) {
             close(false);
             decide_about_memory();
           });
  os::be_first_at_exit();  // NCCL has made what it needs, with what ends it
  if (rank_ == 0) say_what_started(*nccl);
}

void Engine::say_what_started(const ddp_nccl_table& nccl) const {
  os::log(DDP_LOG_INFO, "%d ranks: NCCL %d (%s)%s, %s", size_, nccl.library_version, nccl.path,
          context_.options.nccl_comm != nullptr ? ", with a communicator of the program" : "", device_.table().name);
}

/// The first collective makes the connections; better here than in a pass.
void Engine::try_out(os::Deadline deadline) {
  const auto fail_late = [&] {
    throw make_error(DDP_ERROR_TIMED_OUT, "NCCL connected the ranks but did not carry out its first collective in time%s",
                     context_.options.nccl_comm != nullptr
                         ? "; are the communicators that the ranks lend (nccl_comm) one and the same?"
                         : "");
  };
  // NCCL connects what these calls use, so they may wait for the other ranks themselves.
  communicator_->set_order(order_.get(), deadline.is_never() ? 0 : std::max<int64_t>(deadline.left_ms(), 1),
                           [failure = context_.failure] { failure->check(); });
  on_error<Error>(
      [&] {
        communicator_->all_reduce(stop_words_->spare(), stop_words_->spare(), 1, DDP_F32, DDP_GPU_SUM, stream_->get());
        if (tree_ != nullptr) tree_->connect(*communicator_, stream_->get());
      },
      [&](const Error& error) {
        if (error.status() == DDP_ERROR_TIMED_OUT) fail_late();
      });
  communicator_->settle(context_.options.timeout_ms);
  const gpu::Event done(device_);
  done.record(stream_->get());
  while (!done.is_done()) {
    context_.failure->check();
    if (deadline.passed()) fail_late();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

uint64_t Engine::order_word(At at) const {
  if (order_ == nullptr) return 0;
  return at == At::kNow ? order_->word() : order_->last_word();
}

Engine::~Engine() {
  close(false);
  const bool may_free = !staging_.memory.empty() && device_.frees().may_free(device_.name(), *device_.owner().text());
  for (void* const memory : staging_.memory)
    if (may_free) memory_.free(memory);
  decide_about_memory();
}

/// Does what is on the communication stream? Known in time; within a second once the group is broken.
bool Engine::comes_to_an_end(os::Deadline deadline) noexcept {
  const std::optional<Error> problem = try_to([&] { await_stream(deadline); });
  return !problem || problem->status() != DDP_ERROR_TIMED_OUT;
}

/// NCCL has ended, or no thread waits for it any more: pending work may keep the device busy for ever.
void Engine::decide_about_memory() noexcept {
  if (communicator_ == nullptr) return;
  const auto ends = [this, by = os::Deadline::in_ms(kFreeMs)] { return comes_to_an_end(by); };
  static_cast<void>(try_to([&] { device_.frees().ask_last(ends, device_.name(), *device_.owner().text()); }));
}

void Engine::end_sequence() noexcept {
  flags_.sequence_ended.store(true);
  if (stop_words_ != nullptr) stop_words_->set();
}

Communicator& Engine::communicator() {
  context_.failure->check();
  if (flags_.sequence_ended.load()) throw Error(DDP_ERROR_ABORTED, "an earlier collective of this rank failed");
  return *communicator_;
}

void Engine::order_after(void* stream) {
  if (stream == stream_->get()) return;
  const std::lock_guard lock(ordering_.mutex);
  ordering_.event->record(stream);
  ordering_.event->hold_back(stream_->get());
}

void Engine::order_before(void* stream) {
  if (stream == stream_->get()) return;
  {
    const std::lock_guard lock(ordering_.mutex);
    ordering_.event->record(stream_->get());
    ordering_.event->hold_back(stream);
  }
  if (size_ > 1 && !device_.is_capturing(stream)) watch_->expect_end_of(stream);
}

void* Engine::fork() {
  if (side_stream_ == nullptr) {
    side_stream_ = std::make_unique<gpu::Stream>(device_, gpu::Stream::Priority::kNormal);
    device_.timeline().name_stream(side_stream_->get(), trace::GpuRow::kUpdates);
  }
  const std::lock_guard lock(ordering_.mutex);
  ordering_.event->record(stream_->get());
  ordering_.event->hold_back(side_stream_->get());
  return side_stream_->get();
}

void Engine::join() {
  if (side_stream_ != nullptr) order_after(side_stream_->get());
}

ddp_gpu_stop Engine::stop_on(void* stream, StopRead read) {
  if (stop_words_ == nullptr) return nullptr;
  return read == StopRead::kOnce ? stop_words_->original() : stop_words_->copy_on(stream);
}

/// Nothing if it is one.
void Engine::scale(const Tensor& from, const Tensor& to, const Scale& by, void* stream) {
  if (by.is_one() || from.count == 0) return;
  move(device_, {ddp_gpu_span{from.data, to.data, from.count}}, {from.dtype, to.dtype, by}, stop_on(stream), stream,
       "dividing a sum");
}

void Engine::all_reduce(const Tensor& tensor, ddp_reduce op, void* stream) {
  if (size_ == 1 || tensor.count == 0) return;
  order_after(stream);
  gpu::Timed timed(device_, stream_->get(), trace::GpuWork::kAllReduce, tensor.bytes());
  if (tree_ != nullptr) {
    tree_->all_reduce(*this, tensor, op);
    timed.end();
    return order_before(stream);
  }
  const Factors factors = factors_of(cpu::ReduceRule{tensor.dtype, op, size_});
  scale(tensor, tensor, factors.before, stream_->get());
  communicator().all_reduce(tensor.data, tensor.data, tensor.count, tensor.dtype, nccl_reduction(op), stream_->get());
  scale(tensor, tensor, factors.after, stream_->get());
  timed.end();
  order_before(stream);
}

void Engine::all_gather(const Tensor& input, const Tensor& output, void* stream) {
  if (output.count == 0) return;
  if (size_ == 1) {
    if (input.data != output.data) device_.copy(output.data, input.data, input.bytes(), stream);
    return;
  }
  order_after(stream);
  gpu::Timed timed(device_, stream_->get(), trace::GpuWork::kAllGather, output.bytes());
  communicator().all_gather(input.data, output.data, input.count, input.dtype, stream_->get());
  timed.end();
  order_before(stream);
}

void Engine::reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void* stream) {
  if (input.count == 0) return;
  if (size_ == 1) {
    if (input.data != output.data) device_.copy(output.data, input.data, input.bytes(), stream);
    return;
  }
  order_after(stream);
  gpu::Timed timed(device_, stream_->get(), trace::GpuWork::kReduceScatter, input.bytes());
  if (tree_ != nullptr) {
    tree_->reduce_scatter(*this, input, output, op);
    timed.end();
    return order_before(stream);
  }
  const Factors factors = factors_of(cpu::ReduceRule{input.dtype, op, size_});
  const Tensor terms = factors.before.is_one() ? input : terms_like(input, stream);
  scale(input, terms, factors.before, stream_->get());
  communicator().reduce_scatter(terms.data, output.data, output.count, output.dtype, nccl_reduction(op), stream_->get());
  scale(output, output, factors.after, stream_->get());
  timed.end();
  order_before(stream);
}

/// Memory of the transport's own for terms that are divided before the sum, because the input stays as it is.
Tensor Engine::terms_like(const Tensor& input, void* stream) {
  if (input.bytes() > staging_.bytes && device_.is_capturing(stream))
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_group_reduce_scatter: a mean of F16 takes memory at its first call, which cannot be captured into a "
                "graph; make a call of this size before the capture");
  Tensor terms = input;
  terms.data = static_cast<std::byte*>(staging(input.bytes()));
  return terms;
}

void Engine::broadcast(const Tensor& tensor, int32_t root, void* stream) {
  if (size_ == 1 || tensor.count == 0) return;
  order_after(stream);
  gpu::Timed timed(device_, stream_->get(), trace::GpuWork::kBroadcast, tensor.bytes());
  communicator().broadcast(tensor.data, tensor.data, tensor.count, tensor.dtype, root, stream_->get());
  timed.end();
  order_before(stream);
}

void* Engine::alloc(int64_t bytes) {
  if (size_ > 1) {
    void* const memory = communicator().alloc(bytes);
    memory_.take(memory, bytes, communicator_->table());
    device_.zero(memory, bytes, nullptr);
    device_.synchronize(nullptr);
    return memory;
  }
  gpu::Array array(device_, bytes, "the group's memory");
  void* const data = array.data();
  memory_.take(std::move(array), bytes);
  return data;
}

void* Engine::staging(int64_t bytes) {
  if (bytes > staging_.bytes) {
    const int64_t larger = std::max(bytes, 2 * staging_.bytes);  // what is left behind, which a graph may use, is less
    staging_.memory.reserve(staging_.memory.size() + 1);
    staging_.memory.push_back(alloc(larger));
    staging_.bytes = larger;
  }
  return staging_.memory.back();
}

/// The communication stream, which waits for the other ranks and, if the group breaks, perhaps for ever.
void Engine::await_stream(os::Deadline deadline) {
  const gpu::Event end(device_);
  end.record(stream_->get());
  os::Deadline after_break = flags_.stuck ? os::Deadline::in_ms(1) : os::Deadline::never();
  flags_.stuck = false;
  while (!end.is_done()) {
    if (after_break.is_never() && context_.failure->woken()) after_break = os::Deadline::in_ms(kFreeMs);
    if (deadline.passed() || after_break.passed()) {
      flags_.stuck = true;
      throw Error(DDP_ERROR_TIMED_OUT, "work on the device does not end");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

bool Engine::is_done_in_time() {
  const gpu::Event end(device_);
  end.record(stream_->get());
  for (const auto by = os::Deadline::in_ms(idle_limit_ms(context_.options.timeout_ms)); !end.is_done();) {
    if (by.passed() || context_.failure->woken()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

void Engine::free(void* data) noexcept {
  if (!device_.frees().may_free(device_.name(), *device_.owner().text())) return;
  memory_.free(data);
}

void Engine::wake() noexcept {
  if (stop_words_ != nullptr) stop_words_->set();  // before NCCL ends
  device_.frees().set_limit(kFreeMs);
  if (order_ != nullptr) order_->end();
  if (watch_ != nullptr) watch_->wake();
}

void Engine::close(bool in_order, Leaves what) noexcept {
  if (watch_ == nullptr) return;  // one rank, or never connected
  order_->end();
  if (what == Leaves::kProcess) {
    if (in_order) static_cast<void>(comes_to_an_end(os::Deadline::in_ms(kExitMs)));
    communicator_->leave();
    static_cast<void>(watch_->stop());
    return;
  }
  if (!in_order) {
    wake();
    watch_->await_end(kBrokenMs);
  }
  if (watch_->stop() && in_order) close_in_order();
}

/// The owner of a lent communicator may end it at once; NCCL's own end waits for the device, too.
void Engine::close_in_order() noexcept {
  const int64_t limit_ms = close_limit_ms(size_, context_.options.timeout_ms);
  if (context_.options.nccl_comm != nullptr) static_cast<void>(try_to([&] { await_stream(os::Deadline::in_ms(limit_ms)); }));
  communicator_->close(limit_ms, [this] { return context_.failure->woken(); });
}

}  // namespace ddp::nccl
