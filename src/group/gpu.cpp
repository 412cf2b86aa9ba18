// SPDX-License-Identifier: Apache-2.0
#include "group/gpu.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "bootstrap/failure.hpp"
#include "control/call_state.hpp"
#include "control/consensus.hpp"
#include "control/control.hpp"
#include "core/attempt.hpp"
#include "group/health.hpp"
#include "group/links.hpp"
#include "group/select.hpp"
#include "nccl/nccl_transport.hpp"
#include "nccl/own_gpu.hpp"
#include "os/clock.hpp"
#include "trace/watch.hpp"

namespace ddp::group {
namespace {

constexpr int64_t kBrokenMs = 1'000;  // for work under way, when the group is broken
constexpr int64_t kLookNs = 50'000;   // at the device, before the thread sleeps between looks
constexpr auto kLookAgain = std::chrono::microseconds(20);

}  // namespace

Gpu::Gpu(bootstrap::Control& control, bootstrap::Failure& failure, Health& health, const ddp_group_options& options,
         std::shared_ptr<nccl::OwnGpu> own)
    : control_(control), failure_(failure), health_(health), options_(options), own_(std::move(own)) {}

Gpu::~Gpu() = default;

const gpu::Device& Gpu::device() { return own_->open(); }
gpu::Scratch& Gpu::scratch() { return own_->scratch(); }
void Gpu::bind(Tensor& tensor, const char* what) { own_->bind(tensor, what); }
void Gpu::require_host(const Tensor& tensor, const char* what, const char* instead) {
  own_->require_host(tensor, what, instead);
}

nccl::NcclTransport& Gpu::nccl() {
  if (nccl_ != nullptr) return *nccl_;
  health_.check_usable();
  require_gpu_sums(control_, options_);
  require_gpu_links(control_, options_);
  const os::Deadline deadline = os::Deadline::in_ms(options_.rendezvous_timeout_ms);
  const collective::TransportContext context{&control_, &failure_, options_};
  const auto make = [&] {
    bootstrap::all_or_none(control_, "GPU", deadline, [&] { static_cast<void>(device()); });
    nccl_ = std::make_unique<nccl::NcclTransport>(context, device(), own_->memory(), deadline);
  };
  on_error(make, [this](const Error& error) { health_.fail(error); });  // the others are in it
  published_.store(nccl_.get());
  if (trace::Watch* const watch = control_.calls().watch()) watch->add_transport(trace::kNccl);
  failure_.add_waker([raw = nccl_.get()] { raw->wake(); });
  return *nccl_;
}

const uint32_t* Gpu::stop_on(void* stream) const {
  nccl::NcclTransport* const transport = existing_nccl();
  return transport == nullptr ? nullptr : transport->stop_on(stream);
}

const uint32_t* Gpu::stop_step_on(void* stream) const { return options_.recoverable != 0 ? nullptr : stop_on(stream); }

const uint32_t* Gpu::stop_step_word() const {
  nccl::NcclTransport* const transport = options_.recoverable != 0 ? nullptr : existing_nccl();
  return transport == nullptr ? nullptr : transport->stop_on(nullptr, nccl::StopRead::kOnce);
}

void Gpu::settle() {
  nccl::NcclTransport* const transport = options_.recoverable != 0 ? existing_nccl() : nullptr;
  if (transport == nullptr || transport->size() == 1) return;
  if (settled_ == nullptr) settled_ = std::make_unique<gpu::Event>(transport->device());
  settled_->record(transport->stream());
  os::Deadline end = os::Deadline::never();  // what waits for a lost rank may wait for ever
  for (const int64_t begin = os::now_ns(); !settled_->is_done() && !end.passed();) {
    if (end.is_never() && failure_.woken()) end = os::Deadline::in_ms(kBrokenMs);
    os::now_ns() - begin < kLookNs ? std::this_thread::yield() : std::this_thread::sleep_for(kLookAgain);
  }
  failure_.check();
}

bool Gpu::gave(const std::byte* data, int64_t bytes) const noexcept {
  const nccl::GivenMemory* const memory = own_->existing_memory();
  return memory != nullptr && memory->piece_of(data, bytes).has_value();
}

bool Gpu::free(void* data) noexcept {
  nccl::GivenMemory* const memory = own_->existing_memory();
  if (memory == nullptr || !memory->owns(data)) return false;
  nccl_ != nullptr ? nccl_->free(data) : memory->free(data);
  return true;
}

void Gpu::in_line(void* stream, const std::function<void(void* communication)>& body) {
  nccl::NcclTransport& transport = nccl();
  transport.order_after(stream);
  body(transport.stream());
  transport.order_before(stream);
}

void Gpu::close(bool in_order) noexcept {
  if (nccl_ != nullptr) nccl_->close(in_order);
}

void Gpu::exit(bool in_order) noexcept {
  if (nccl::NcclTransport* const transport = existing_nccl())
    transport->close(in_order, nccl::NcclTransport::End::kOfProcess);
}

void Gpu::end() noexcept {
  published_.store(nullptr);
  nccl_.reset();
}

}  // namespace ddp::group
