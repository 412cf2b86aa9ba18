// SPDX-License-Identifier: Apache-2.0
#include "shm/peer_monitor.hpp"

#include <cerrno>
#include <chrono>

#include "bootstrap/failure.hpp"
#include "control/limits.hpp"
#include "control/texts.hpp"
#include "core/attempt.hpp"
#include "os/thread.hpp"

namespace ddp::shm {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);

void make_robust(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  const int result = pthread_mutex_init(&mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  if (result != 0) throw make_error(DDP_ERROR_NOT_SUPPORTED, "no process-shared robust mutexes on this machine");
}

}  // namespace

PeerMonitor::PeerMonitor(const Mesh& mesh, const collective::TransportContext& context) : mesh_(&mesh), context_(context) {
  if (mesh.threads) return;
  make_robust(mesh.own_page().monitor);
  thread_ = os::start_thread("ddp-monitor", [this] { watch(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return holding_; });
}

PeerMonitor::~PeerMonitor() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool PeerMonitor::is_dead(int32_t peer) noexcept {
  Page& page = mesh_->page(peer);
  if (page.magic.load() != Page::kMagic) return false;  // not held yet, or left in good order
  if (page.dead.load() != 0) return true;
  const int result = pthread_mutex_trylock(&page.monitor);
  if (result == EBUSY) return false;
  if (result == 0) {  // unlocked by a rank that left
    pthread_mutex_unlock(&page.monitor);
    return false;
  }
  page.dead.store(1);  // EOWNERDEAD goes to one looker only: tell the others
  return true;
}

// A dead rank may have ended because of another rank's death: the control plane knows which was first, and informs all.
// If it does not answer (rank 0 is stopped), what was seen is the cause, in the same words.
void PeerMonitor::look() {
  for (int32_t peer = 0; peer < mesh_->size && !dead_.has_value(); ++peer) {
    if (peer == mesh_->rank || !is_dead(peer)) continue;
    context_.control->saw_death(peer);
    dead_ = peer;
    decides_by_ = os::Deadline::in_ms(bootstrap::limits::kFirstCauseMs);
  }
  if (!dead_.has_value() || !decides_by_.passed()) return;
  const bootstrap::Member& member = context_.control->member(*dead_);
  const Error cause = member.rank == 0 ? bootstrap::texts::server_gone(member) : bootstrap::texts::gone(member);
  context_.control->abort(cause);
  context_.failure->set(cause);
}

void PeerMonitor::watch() {
  Page& own = mesh_->own_page();
  pthread_mutex_lock(&own.monitor);
  own.magic.store(Page::kMagic);
  std::unique_lock lock(mutex_);
  holding_ = true;
  changed_.notify_all();
  while (!stop_) {
    changed_.wait_for(lock, kLook);
    lock.unlock();
    // Without memory for the text: the next look reports it.
    if (!context_.failure->woken()) static_cast<void>(try_to([this] { look(); }));
    lock.lock();
  }
  own.magic.store(0);
  pthread_mutex_unlock(&own.monitor);
}

}  // namespace ddp::shm
