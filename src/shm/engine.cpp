// SPDX-License-Identifier: Apache-2.0
#include "shm/engine.hpp"

#include <algorithm>

#include "bootstrap/failure.hpp"

namespace ddp::shm {

uint64_t StageRing::take(uint64_t count) noexcept {
  const uint64_t before = taken_;
  taken_ += count;
  return before;
}

std::byte* StageRing::stage(int32_t of, uint64_t chunk) const noexcept {
  return engine_.mesh().page(of).stage[chunk % kStageDepth];
}
std::byte* StageRing::result(int32_t of, uint64_t chunk) const noexcept {
  return engine_.mesh().page(of).result[chunk % kStageDepth];
}

bool StageRing::stage_free(uint64_t chunk) noexcept {
  const Use& use = uses_[chunk % kStageDepth];
  return use.chunk == 0 || engine_.all_reached(use.until, use.chunk);
}

bool StageRing::result_free(uint64_t chunk) noexcept {
  return chunk <= static_cast<uint64_t>(kStageDepth) ||
         engine_.all_reached(Counter::kTaken, chunk - static_cast<uint64_t>(kStageDepth));
}

void StageRing::use_stage(uint64_t chunk, Counter until) noexcept { uses_[chunk % kStageDepth] = Use{until, chunk}; }

Engine::Engine(Mesh mesh, const collective::TransportContext& context)
    : mesh_(std::move(mesh)),
      context_(context),
      leaves_(collective::leaves_by_rank(context.options, mesh_.size)),
      waiter_(mesh_, context),
      calls_(context.control->calls()),
      seen_(static_cast<size_t>(mesh_.size)) {
  for (size_t i = 0; i < own_.size(); ++i) own_[i] = &counter_of(mesh_.own_page(), static_cast<Counter>(i));
}

std::atomic<uint64_t>& Engine::counter_of(Page& page, Counter counter) noexcept {
  switch (counter) {
    case Counter::kFinished: return page.finished;
    case Counter::kFilled: return page.filled;
    case Counter::kReduced: return page.reduced;
    case Counter::kTaken: break;
  }
  return page.taken;
}

bool Engine::reached(int32_t of, Counter counter, uint64_t value) noexcept {
  uint64_t& seen = seen_[static_cast<size_t>(of)][static_cast<size_t>(counter)];
  if (seen >= value) return true;
  seen = counter_of(mesh_.page(of), counter).load();
  return seen >= value || misses(of);
}

bool Engine::all_reached(Counter counter, uint64_t value) noexcept {
  for (int32_t peer = 0; peer < mesh_.size; ++peer)
    if (!reached(peer, counter, value)) return false;
  return true;
}

bool Engine::all_shown(uint64_t sequence, int64_t payload_bytes) noexcept {
  if (shown_.sequence != sequence) shown_ = {sequence, 0};
  for (; shown_.by < mesh_.size; ++shown_.by) {
    const Slot& theirs = slot(shown_.by, sequence);
    if (theirs.shown.load() < sequence) return misses(shown_.by);
    // One rank's payload is under way while the next rank's word is awaited.
    for (int64_t at = 0; at < payload_bytes; at += 64) __builtin_prefetch(theirs.payload + at);
  }
  return true;
}

bool Engine::slot_free(uint64_t sequence) noexcept {
  if (sequence <= announced_.finished_by_all + static_cast<uint64_t>(kSlots)) return true;
  uint64_t least = UINT64_MAX;
  int32_t last = 0;
  for (int32_t peer = 0; peer < mesh_.size; ++peer)
    if (const uint64_t finished = mesh_.page(peer).finished.load(); finished < least) least = finished, last = peer;
  announced_.finished_by_all = least;
  return sequence <= announced_.finished_by_all + static_cast<uint64_t>(kSlots) || misses(last);
}

// A rank that waits for a rail waits for the rank that the rail waits for.
collective::Late Engine::note_wait(int64_t begin_ns, Behind behind) noexcept {
  const int32_t last = waits_.late.load(std::memory_order_relaxed);
  if (last < 0 || last == mesh_.rank) return {};
  const int64_t end_ns = os::now_ns();
  const Page& page = mesh_.page(last);
  collective::Late late;
  if (behind == Behind::kARail) late = {page.late_rank.load(), page.late_ns.load()};
  const int32_t rank = context_.control->member(last).rank;
  if (context_.waits != nullptr) context_.waits->note({rank, context_.channel, begin_ns, end_ns}, late);
  return {rank, end_ns - begin_ns};
}

void Engine::check_stamps(uint64_t sequence) const {
  const collective::Stamp& first = slot(0, sequence).stamp;
  for (int32_t peer = 1; peer < mesh_.size; ++peer) {
    const collective::Stamp& stamp = slot(peer, sequence).stamp;
    if (!(stamp == first)) throw collective::stamp_mismatch(*context_.control, 0, first, peer, stamp);
  }
}

void Engine::check_in_reach() const {
  std::atomic_thread_fence(std::memory_order_acq_rel);
  for (int32_t peer = 0; peer < mesh_.size; ++peer) {
    if (mesh_.first_page(peer).withdrawn.load(std::memory_order_relaxed) == 0) continue;
    if (context_.failure != nullptr) context_.failure->check();
    throw make_error(DDP_ERROR_PEER_FAILED, "the group broke on %s in the middle of an exchange",
                     context_.control->member(peer).name().c_str());
  }
}

Error Engine::timed_out(uint64_t sequence) const {
  // The ranks that are furthest behind are the ones that all others wait for.
  uint64_t least = UINT64_MAX;
  const auto progress = [&](int32_t rank) {
    const Page& page = mesh_.page(rank);
    return page.announced.load() + page.finished.load() + page.filled.load() + page.reduced.load() + page.taken.load();
  };
  for (int32_t peer = 0; peer < mesh_.size; ++peer)
    if (peer != mesh_.rank) least = std::min(least, progress(peer));
  const collective::Stamp& stamp = mesh_.own_page().slot(sequence).stamp;
  std::string text;
  ErrorDetails details;
  for (int32_t peer = 0; peer < mesh_.size; ++peer) {
    if (peer == mesh_.rank || progress(peer) != least) continue;
    details.ranks.push_back(context_.control->member(peer).rank);
    text += (text.empty() ? "" : "; ") + context_.control->member(peer).name() +
            (mesh_.page(peer).announced.load() < sequence ? " did not join " : " joined but did not finish ") +
            stamp.describe() + " within " + std::to_string(context_.options.timeout_ms) + " ms (" +
            context_.control->describe_progress(peer) + ")";
  }
  return Error(DDP_ERROR_TIMED_OUT, text).with(std::move(details));
}

}  // namespace ddp::shm
