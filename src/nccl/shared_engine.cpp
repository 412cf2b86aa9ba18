// SPDX-License-Identifier: Apache-2.0
#include "nccl/shared_engine.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "bootstrap/failure.hpp"
#include "control/breaking.hpp"
#include "control/call_state.hpp"
#include "control/consensus.hpp"
#include "core/float_environment.hpp"
#include "nccl/communicator.hpp"
#include "os/clock.hpp"
#include "trace/watch.hpp"

namespace ddp::nccl {
namespace {

constexpr int64_t kLookNs = 50'000;  // at the device, before the thread sleeps between looks
constexpr auto kLookAgain = std::chrono::microseconds(20);

}  // namespace

SharedEngine::SharedEngine(const collective::TransportContext& context, std::shared_ptr<gpu::OwnGpu> own,
                           std::function<void()> require)
    : context_{context.control, context.failure, context.options},
      own_(std::move(own)),
      require_(std::move(require)),
      gave_up_(bootstrap::gave_up(*context.control)) {}

SharedEngine::~SharedEngine() = default;

Engine& SharedEngine::engine() {
  if (engine_ != nullptr) return *engine_;
  context_.failure->check();
  require_();
  const StandardFloats floats;  // for threads that are made here
  const os::Deadline deadline = os::Deadline::in_ms(context_.options.rendezvous_timeout_ms);
  const auto make = [&] {
    bootstrap::all_or_none(*context_.control, "GPU", deadline, [&] { static_cast<void>(own_->open()); });
    engine_ = std::make_unique<Engine>(context_, own_->open(), own_->memory(), deadline);
  };
  on_error(make, [this](const Error& error) {  // the others are in it
    bootstrap::fail(*context_.control, *context_.failure, error);
  });
  published_.store(engine_.get());
  if (trace::Watch* const watch = context_.control->calls().watch()) watch->add_transport(trace::kNccl);
  context_.failure->add_waker([raw = engine_.get()] { raw->wake(); });
  return *engine_;
}

void SharedEngine::give_up(const Error& error) noexcept {
  if (error.is_agreed() && !breaks_group(error.status())) return;
  bootstrap::give_up(*context_.control, *context_.failure, nullptr, error, gave_up_);
}

void SharedEngine::settle(const char* function) {
  Engine* const engine = context_.options.recoverable != 0 ? existing() : nullptr;
  if (engine == nullptr) return;
  if (function != nullptr)
    engine->device().refuse_capture(
        engine->stream(), function,
        "the group can recover (recoverable = 1), so the host waits for what the ranks exchange");
  if (engine->size() == 1) return;
  if (settled_ == nullptr) settled_ = std::make_unique<gpu::Event>(engine->device());
  settled_->record(engine->stream());
  os::Deadline end = os::Deadline::never();  // what waits for a lost rank may wait for ever
  for (const int64_t begin = os::now_ns(); !settled_->is_done() && !end.passed();) {
    if (end.is_never() && context_.failure->woken()) end = os::Deadline::in_ms(kBrokenMs);
    os::now_ns() - begin < kLookNs ? std::this_thread::yield() : std::this_thread::sleep_for(kLookAgain);
  }
  context_.failure->check();
}

const uint32_t* SharedEngine::stop_on(void* stream, collective::StopRead read) {
  Engine* const engine = existing();
  return engine == nullptr ? nullptr : engine->stop_on(stream, read);
}

void SharedEngine::open_pass() {
  if (pass_is_open_.exchange(true))
    throw Error(DDP_ERROR_INVALID_STATE,
                "ddp_model_begin_backward: a backward pass of another model is open, and gradients on GPUs are reduced by "
                "one pass at a time; end it first, or use a second group");
}

bool SharedEngine::free(void* data) noexcept {
  gpu::GivenMemory* const memory = own_->existing_memory();
  if (memory == nullptr || !memory->owns(data)) return false;
  engine_ != nullptr ? engine_->free(data) : memory->free(data);
  return true;
}

bool SharedEngine::gave(const std::byte* data, int64_t bytes) const noexcept {
  const gpu::GivenMemory* const memory = own_->existing_memory();
  return memory != nullptr && memory->piece_of(data, bytes).has_value();
}

void SharedEngine::close(bool in_order, Leaves what) noexcept {
  if (Engine* const engine = existing()) engine->close(in_order, what);
}

void SharedEngine::end() noexcept {
  published_.store(nullptr);
  engine_.reset();
}

}  // namespace ddp::nccl
