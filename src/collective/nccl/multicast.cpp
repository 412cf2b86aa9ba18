// SPDX-License-Identifier: Apache-2.0
#include "collective/nccl/multicast.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "bootstrap/control/consensus.hpp"
#include "collective/nccl/connect.hpp"
#include "core/attempt.hpp"
#include "core/bytes.hpp"
#include "os/log.hpp"

namespace ddp::nccl {
namespace {

constexpr int32_t kBlocks = 32;  // of threads of a kernel, which all run at the same time

int32_t blocks_of(const ddp_group_options& options) noexcept {
  return options.nccl_max_ctas > 0 ? std::min(options.nccl_max_ctas, kBlocks) : kBlocks;
}

}  // namespace

/// What NCCL has made, which it may write to as long as a call is under way.
struct Multicast::Made {
  explicit Made(const ddp_nccl_table& nccl) : table(nccl) {}
  ~Made() { destroy(nullptr); }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  void destroy(void* comm) noexcept {
    if (void* const own = std::exchange(team, nullptr); own != nullptr) static_cast<void>(table.team_destroy(comm, own));
  }

  const ddp_nccl_table& table;
  void* team = nullptr;
  struct Window {
    void* handle = nullptr;
    int32_t number = 0;
  };
  std::map<const void*, Window> windows;  // by the pieces that they are over
  int32_t registered = 0;                 // so far
  std::string gone;                       // numbers of those that were given back, in that order
  bool stuck = false;                     // a call is under way, or failed: the communicator takes no other but its end
};

Multicast::Multicast(const Of& of) : of_(of) {
  const std::string mine = obstacle();
  for (const std::string& theirs : gather("multicast", mine)) {
    if (theirs.empty()) continue;
    if (of_.context.control->rank() == 0)
      os::log(DDP_LOG_INFO, "nccl_multicast: steps within a pass go the ordinary way, because %s", theirs.c_str());
    return;
  }
  connect();
  make_team();
}

Multicast::~Multicast() { end(false); }

/// Why this rank cannot; empty: it can, as far as it knows.
std::string Multicast::obstacle() const {
  const bootstrap::Control& control = *of_.context.control;
  const std::string name = control.member(control.rank()).name();
  if (of_.communicator.table().team_create == nullptr)
    return name + " has NCCL " + std::to_string(of_.communicator.table().library_version) +
           ", and its GPU module was not built for the kernel interface of that version (2.28.7 or a later 2.28)";
  int32_t has = 0;
  const gpu::Device::Current current(of_.device);
  const int32_t code = of_.device.table().device_multicast(of_.device.index(), &has);
  if (code != 0 || has == 0) return of_.device.name() + " of " + name + " has no multicast, or the module no code for it";
  const bootstrap::Member& first = control.member(0);
  const bootstrap::Member& own = control.member(control.rank());
  return own.host == first.host && own.boot_id == first.boot_id ? "" : "the ranks are on several hosts";
}

std::vector<std::string> Multicast::gather(const char* what, const std::string& mine) const {
  return of_.context.control->gather(what, mine, os::Deadline::in_ms(of_.context.options.rendezvous_timeout_ms));
}

void Multicast::connect() {
  bootstrap::Control& control = *of_.context.control;
  const os::Deadline deadline = os::Deadline::in_ms(of_.context.options.rendezvous_timeout_ms);
  const std::vector<std::string> ids = bootstrap::all_or_none(control, "multicast id", deadline, [&] {
    return control.rank() == 0 ? make_id(control, of_.communicator.table()) : std::string();
  });
  const auto check = [failure = of_.context.failure] { failure->check(); };
  communicator_ = connect_ranks(control, of_.device, of_.communicator.table(),
                                Communicator::Place{control.rank(), control.size(), ids.front(), "libddp multicast",
                                                    of_.context.options.nccl_max_ctas},
                                deadline, check);
  communicator_->set_order(nullptr, of_.context.options.rendezvous_timeout_ms, check);
}

/// A communicator that has no multicast after all is ended before the ranks tell each other, so that nobody waits for it.
void Multicast::make_team() {
  const auto made = std::make_shared<Made>(of_.communicator.table());
  const std::optional<Error> problem = try_to([&] {
    communicator_->run(
        "making a team for multicast",
        [made, blocks = blocks_of(of_.context.options)](const ddp_nccl_table& nccl, void* comm) {
          return nccl.team_create(comm, blocks, &made->team);
        },
        made);
  });
  const bool mine = !problem && of_.communicator.table().team_has_multicast(made->team) == 1;
  if (!mine) communicator_->abort();
  of_.context.failure->check();
  if (all_have("multicast team", mine)) {
    made_ = made;
    return;
  }
  communicator_.reset();
  if (of_.context.control->rank() == 0)
    os::log(DDP_LOG_INFO,
            "nccl_multicast: steps within a pass go the ordinary way, because NCCL has no multicast between these ranks%s%s",
            problem ? ": " : "", problem ? problem->text().c_str() : "");
}

bool Multicast::all_have(const char* what, bool mine) {
  const std::vector<std::string> all = gather(what, mine ? "yes" : "no");
  return std::all_of(all.begin(), all.end(), [](const std::string& theirs) { return theirs == "yes"; });
}

/// Equal on all ranks, and not empty: then one address reaches all of them.
std::string Multicast::places_of(const Blocks& blocks) {
  const bool has_dtype = blocks.dtype == DDP_F32 || blocks.dtype == DDP_BF16;
  if (blocks.bytes == 0 || !has_dtype) return {};
  const std::optional<GivenMemory::Piece> grads = of_.memory.piece_of(blocks.grads, blocks.bytes);
  const std::optional<GivenMemory::Piece> values = of_.memory.piece_of(blocks.values, blocks.bytes);
  if (!grads || !values) return {};
  ByteWriter bytes;
  bytes.text(made_->gone).number(made_->registered).number(blocks.bytes).number(static_cast<int32_t>(blocks.dtype));
  bytes.number(grads->bytes).number(int64_t{blocks.grads - grads->begin});
  bytes.number(values->bytes).number(int64_t{blocks.values - values->begin});
  for (const GivenMemory::Piece& piece : {*grads, *values}) {
    const auto found = made_->windows.find(piece.begin);
    bytes.number(found == made_->windows.end() ? -1 : found->second.number);
  }
  return std::move(bytes).bytes();
}

std::optional<ddp_gpu_multicast> Multicast::reach(const Blocks& blocks) {
  if (!has_team()) return std::nullopt;
  const std::string mine = places_of(blocks);
  const std::vector<std::string> all = gather("multicast places", mine);
  if (mine.empty() || std::any_of(all.begin(), all.end(), [&](const std::string& theirs) { return theirs != mine; }))
    return std::nullopt;
  const GivenMemory::Piece grads = *of_.memory.piece_of(blocks.grads, blocks.bytes);
  const GivenMemory::Piece values = *of_.memory.piece_of(blocks.values, blocks.bytes);
  ddp_gpu_multicast over{};
  over.team = made_->team;
  over.grads = window_over(grads);
  over.values = window_over(values);
  over.grads_begin = grads.begin;
  over.values_begin = values.begin;
  over.grad_block = blocks.grads;
  over.value_block = blocks.values;
  over.bytes = blocks.bytes;
  over.live = of_.live;
  over.blocks = blocks_of(of_.context.options);
  over.dtype = blocks.dtype;
  return over;
}

void* Multicast::window_over(const GivenMemory::Piece& piece) {
  if (const auto found = made_->windows.find(piece.begin); found != made_->windows.end()) return found->second.handle;
  Made::Window& window = made_->windows[piece.begin];
  window.number = made_->registered++;
  made_->stuck = true;
  communicator_->run(
      "registering memory for multicast",
      [&](const ddp_nccl_table& nccl, void* comm) {
        return nccl.window_register(comm, piece.begin, piece.bytes, &window.handle);
      },
      made_);
  made_->stuck = false;
  return window.handle;
}

std::optional<Error> Multicast::deregister(void* window) noexcept {
  return try_to([&] {
    communicator_->run(
        "deregistering memory", [&](const ddp_nccl_table& nccl, void* comm) { return nccl.window_deregister(comm, window); },
        made_);
  });
}

void Multicast::forget(const void* piece) noexcept {
  if (!has_team()) return;
  if (made_->stuck) return end(true);  // the group is broken
  const auto found = made_->windows.find(piece);
  if (found == made_->windows.end()) return;
  static_cast<void>(try_to([&] { made_->gone += std::to_string(found->second.number) + " "; }));
  const std::optional<Error> problem = deregister(found->second.handle);
  made_->windows.erase(found);
  if (!problem) return;
  end(true);  // memory under a window must not be freed: windows end with their communicator
  of_.context.control->abort(*problem);
  static_cast<void>(of_.context.failure->set(*problem));
}

void Multicast::close(int64_t limit_ms, const std::function<bool()>& is_broken) noexcept {
  if (!has_team()) return;
  for (const auto& [piece, window] : made_->windows)
    if (deregister(window.handle)) return end(true);
  made_->windows.clear();
  static_cast<void>(try_to([&] {
    communicator_->run(
        "ending a team",
        [this](const ddp_nccl_table&, void* comm) {
          made_->destroy(comm);
          return 0;
        },
        made_);
  }));
  communicator_->close(limit_ms, is_broken);
  communicator_.reset();
  made_.reset();
}

void Multicast::end(bool is_idle) noexcept {
  if (communicator_ == nullptr) return;
  is_idle ? communicator_->abort() : communicator_->leave();
  communicator_.reset();
  made_.reset();
}

}  // namespace ddp::nccl
