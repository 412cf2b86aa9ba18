// SPDX-License-Identifier: Apache-2.0
#include "shm/transport.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>

#include "bootstrap/failure.hpp"
#include "shm/chunks.hpp"
#include "shm/exchange.hpp"
#include "shm/extent.hpp"
#include "shm/mailboxes.hpp"
#include "shm/peer_monitor.hpp"
#include "shm/reach.hpp"

namespace ddp::shm {
namespace {

/// memcpy that accepts an empty tensor's NULL.
void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) noexcept {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

class ShmTransport final : public collective::Transport {
 public:
  ShmTransport(Mesh mesh, const collective::TransportContext& context)
      : engine_(std::move(mesh), context),
        in_(static_cast<size_t>(engine_.leaves().total())),
        out_(static_cast<size_t>(engine_.size())),
        context_(context) {
    if (context.channel == 0) monitor_.emplace(engine_.mesh(), context);
  }

  [[nodiscard]] ddp_backend backend() const noexcept override {
    return engine_.mesh().threads ? DDP_BACKEND_LOCAL : DDP_BACKEND_SHM;
  }
  [[nodiscard]] bool pollable() const noexcept override { return true; }
  [[nodiscard]] std::shared_ptr<collective::Arena> arena() const noexcept override { return engine_.mesh().own; }
  [[nodiscard]] int64_t place_of(const void* data, int64_t bytes) const noexcept override {
    return place_in(engine_.mesh(), data, bytes);
  }
  [[nodiscard]] std::shared_ptr<std::byte> reach(int32_t rank, int64_t place) const noexcept override {
    return shm::reach(engine_.mesh(), rank, place);
  }
  [[nodiscard]] std::unique_ptr<messages::Streams> make_streams() override {
    std::vector<int32_t> ranks(static_cast<size_t>(engine_.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return std::make_unique<Mailboxes>(engine_.mesh(), ranks, engine_.size());
  }
  void shutdown() noexcept override { monitor_.reset(); }  // or the end of the process is a death
  void wake() noexcept override { engine_.wake(); }

  [[nodiscard]] bool can(collective::Collective, bool) const noexcept override { return true; }
  [[nodiscard]] std::unique_ptr<collective::Transport> open_channel(int32_t number) override;
  [[nodiscard]] std::unique_ptr<collective::BucketOperation> prepare(const collective::ExchangeSpec& spec) override;

  void meet(const collective::Stamp& stamp) override {
    engine_.leave(engine_.meet(stamp, 0, [](Slot&) {}));
  }
  void reduce(const Tensor& tensor, ddp_reduce op, int32_t root, void* stream) override;
  [[nodiscard]] int64_t sent_bytes() const noexcept override { return engine_.sent_bytes(); }
  void all_gather(const Tensor& input, const Tensor& output, void* stream) override;
  void reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void* stream) override;
  void broadcast(const Tensor& tensor, int32_t root, void* stream) override;

 private:
  [[nodiscard]] cpu::ReduceRule rule(const Tensor& tensor, ddp_reduce op) const noexcept {
    return cpu::ReduceRule{tensor.dtype, op, engine_.size()};
  }
  /// The rank's input of a sum.
  [[nodiscard]] const void*& input_of(int32_t rank) noexcept {
    return in_[static_cast<size_t>(engine_.leaves().position_of(rank))];
  }
  void add(const cpu::ReduceRule& how, int32_t out_count, int64_t count) noexcept {
    cpu::reduce(how, in_.data(), static_cast<int32_t>(in_.size()), out_.data(), out_count, count);
  }
  [[nodiscard]] bool all_in_reach(uint64_t sequence) const noexcept;
  [[nodiscard]] std::byte* peer_data(int32_t peer, uint64_t sequence) const noexcept {
    return engine_.mesh().base(peer) + offset_in(engine_.slot(peer, sequence).offset);
  }
  void finish_and_wait(uint64_t sequence) {
    engine_.check_in_reach();
    engine_.advance(Counter::kFinished, sequence);
    engine_.wait([&] { return engine_.all_reached(Counter::kFinished, sequence); }, sequence);
  }
  [[nodiscard]] std::vector<PieceReach> exchange_reach(const std::vector<collective::BucketSpec::Piece>& pieces,
                                                       ddp_dtype dtype);
  [[nodiscard]] Extent common_reach(uint64_t sequence, const Tensor& tensor) const noexcept;
  void reduce_in_place(uint64_t sequence, const Tensor& tensor, const cpu::ReduceRule& rule, const Extent& in_reach);
  void reduce_staged(uint64_t sequence, const Tensor& tensor, const cpu::ReduceRule& rule);
  template <class Place>
  void give_staged(uint64_t sequence, const std::byte* data, int64_t bytes, int32_t giver, Place&& place);
  /// `count` elements, `step` in a chunk.
  template <class Work>
  void run_chunks(uint64_t sequence, Chunks chunks, int64_t count, int64_t step, Work&& work) {
    chunks.begin(static_cast<uint64_t>((count + step - 1) / step));
    chunks.finish(work, sequence);
  }
  Engine engine_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  collective::TransportContext context_;
  std::optional<PeerMonitor> monitor_;  // of the first channel, for all of them
};

std::unique_ptr<collective::Transport> ShmTransport::open_channel(int32_t number) {
  const os::Deadline deadline = os::Deadline::in_ms(context_.options.rendezvous_timeout_ms);
  return std::make_unique<ShmTransport>(add_pages(engine_.mesh(), *context_.control, deadline),
                                        collective::of_channel(context_, number));
}

bool ShmTransport::all_in_reach(uint64_t sequence) const noexcept {
  for (int32_t peer = 0; peer < engine_.size(); ++peer)
    if (engine_.slot(peer, sequence).offset == kNotInReach) return false;
  return true;
}

// All ranks' pieces, rank after rank.
std::vector<PieceReach> ShmTransport::exchange_reach(const std::vector<collective::BucketSpec::Piece>& pieces,
                                                     ddp_dtype dtype) {
  std::vector<PieceReach> mine;
  for (const collective::BucketSpec::Piece& piece : pieces) {
    PieceReach reach;
    const int64_t bytes = piece.count * dtype_size(dtype);
    reach.offset = piece.data == nullptr ? kNotInReach : engine_.mesh().own->place_of(piece.data, bytes);
    reach.owned = piece.owned ? 1 : 0;
    mine.push_back(reach);
  }
  std::vector<PieceReach> all(static_cast<size_t>(engine_.size()) * mine.size());
  const auto words = static_cast<int64_t>(mine.size() * 2);
  all_gather(flat_tensor(mine.data(), DDP_I64, words), flat_tensor(all.data(), DDP_I64, words * engine_.size()), nullptr);
  return all;
}

std::unique_ptr<collective::BucketOperation> ShmTransport::prepare(const collective::ExchangeSpec& spec) {
  const std::vector<PieceReach> pieces = exchange_reach(spec.pieces, spec.rule.dtype);
  std::vector<PieceReach> outputs;
  if (!spec.outputs.empty()) outputs = exchange_reach(spec.outputs, spec.rule.dtype);
  return std::make_unique<Exchange>(engine_, spec, Routes(engine_, spec, pieces, outputs));
}

// To one rank as to all: the ranks share the work.
void ShmTransport::reduce(const Tensor& tensor, ddp_reduce op, int32_t root, void*) {
  cpu::ReduceRule how = rule(tensor, op);
  const collective::Stamp stamp = collective::stamp_of_reduce(tensor, op, root);
  const bool small = tensor.bytes() <= kInlineBytes;
  const uint64_t sequence = engine_.meet(stamp, small ? tensor.bytes() : 0, [&](Slot& slot) {
    if (small)
      copy_bytes(slot.payload, tensor.data, tensor.bytes());
    else
      slot.offset = engine_.mesh().own->place_of(tensor.data, tensor.bytes());
  });
  if (small) {
    for (int32_t rank = 0; rank < engine_.size(); ++rank) input_of(rank) = engine_.slot(rank, sequence).payload;
    out_[0] = tensor.data;
    engine_.count_sent(tensor.bytes());
    add(how, 1, tensor.count);
    engine_.leave(sequence);
  } else if (const Extent in_reach = common_reach(sequence, tensor); in_reach.count > 0) {
    reduce_in_place(sequence, tensor, how, in_reach);
  } else {
    reduce_staged(sequence, tensor, how);
  }
}

/// What all ranks reach of all ranks' tensors.
Extent ShmTransport::common_reach(uint64_t sequence, const Tensor& tensor) const noexcept {
  Extent all{0, tensor.count};
  for (int32_t rank = 0; rank < engine_.size(); ++rank)
    all = common(all, extent_of(engine_.slot(rank, sequence).offset, tensor.count, dtype_size(tensor.dtype)));
  return all;
}

// The ends of it that are outside of whole pages on some rank are in the stages while the rest is reduced in place. They are
// short, so every rank adds them for itself.
void ShmTransport::reduce_in_place(uint64_t sequence, const Tensor& tensor, const cpu::ReduceRule& rule,
                                   const Extent& in_reach) {
  const int64_t element = dtype_size(tensor.dtype);
  const std::array<Extent, 2> ends{Extent{0, in_reach.first},
                                   Extent{in_reach.first + in_reach.count, tensor.count - in_reach.first - in_reach.count}};
  const auto in_stage = [&](int32_t rank, uint64_t chunk, size_t end) {
    return engine_.stages().stage(rank, chunk) + static_cast<int64_t>(end) * kStageBytes / 2;
  };
  const auto fill = [&](uint64_t, uint64_t chunk) {
    for (size_t end = 0; end < ends.size(); ++end)
      copy_bytes(in_stage(engine_.rank(), chunk, end), tensor.data + ends[end].first * element, ends[end].count * element);
  };
  const auto add_ends = [&](uint64_t, uint64_t chunk) {
    for (size_t end = 0; end < ends.size(); ++end) {
      for (int32_t rank = 0; rank < engine_.size(); ++rank) input_of(rank) = in_stage(rank, chunk, end);
      out_[0] = tensor.data + ends[end].first * element;
      if (ends[end].count > 0) add(rule, 1, ends[end].count);
    }
  };
  ChunkWork work{fill, add_ends, [](uint64_t, uint64_t) {}};
  Chunks chunks(engine_, true, false);
  if (in_reach.count < tensor.count) {
    int64_t budget = INT64_MAX;
    chunks.begin(1);
    (void)chunks.advance(work, &budget);
  }
  const Share share = share_of(in_reach.count, element, engine_.rank(), engine_.size());
  for (int32_t rank = 0; rank < engine_.size(); ++rank)
    input_of(rank) = out_[static_cast<size_t>(rank)] = peer_data(rank, sequence) + (in_reach.first + share.begin) * element;
  if (share.end > share.begin) add(rule, engine_.size(), share.end - share.begin);
  chunks.finish(work, sequence);
  finish_and_wait(sequence);
}

void ShmTransport::reduce_staged(uint64_t sequence, const Tensor& tensor, const cpu::ReduceRule& rule) {
  engine_.leave(sequence);  // the announcement was read; from here the chunk counters decide
  const int64_t element = dtype_size(tensor.dtype);
  const int64_t step = kStageBytes / element;
  const auto length = [&](uint64_t k) { return std::min(step, tensor.count - static_cast<int64_t>(k) * step); };
  const auto at = [&](uint64_t k) { return tensor.data + static_cast<int64_t>(k) * step * element; };
  const auto part = [&](uint64_t k, int32_t rank) { return share_of(length(k), element, rank, engine_.size()); };
  const int32_t self = engine_.rank();
  const auto fill = [&](uint64_t k, uint64_t chunk) {  // the parts that the others reduce
    std::byte* stage = engine_.stages().stage(self, chunk);
    const Share own = part(k, self);
    engine_.count_sent(length(k) * element);
    cpu::stream_copy(stage, at(k), own.begin * element);
    cpu::stream_copy(stage + own.end * element, at(k) + own.end * element, (length(k) - own.end) * element);
  };
  const auto add = [&](uint64_t k, uint64_t chunk) {  // the own part, in place
    const Share own = part(k, self);
    std::byte* mine = at(k) + own.begin * element;
    for (int32_t rank = 0; rank < engine_.size(); ++rank)
      input_of(rank) = rank == self ? mine : engine_.stages().stage(rank, chunk) + own.begin * element;
    out_[0] = mine;
    if (own.end > own.begin) this->add(rule, 1, own.end - own.begin);
    cpu::stream_copy(engine_.stages().result(self, chunk) + own.begin * element, mine, (own.end - own.begin) * element);
  };
  const auto take = [&](uint64_t k, uint64_t chunk) {
    for (int32_t rank = 0; rank < engine_.size(); ++rank) {
      const Share theirs = part(k, rank);
      if (rank != self)
        copy_bytes(at(k) + theirs.begin * element, engine_.stages().result(rank, chunk) + theirs.begin * element,
                   (theirs.end - theirs.begin) * element);
    }
  };
  run_chunks(sequence, Chunks(engine_, true, true), tensor.count, step, ChunkWork{fill, add, take});
}

/// The bytes of one rank, or of each, to all; `place(rank)` is where those of a rank come to.
template <class Place>
void ShmTransport::give_staged(uint64_t sequence, const std::byte* data, int64_t bytes, int32_t giver, Place&& place) {
  const int32_t self = engine_.rank();
  const auto length = [&](uint64_t k) {
    return std::min<int64_t>(kStageBytes, bytes - static_cast<int64_t>(k) * kStageBytes);
  };
  const auto at = [](uint64_t k) { return static_cast<int64_t>(k) * kStageBytes; };
  const auto gives = [&](int32_t rank) { return giver == Chunks::kAll || giver == rank; };
  const auto give = [&](uint64_t k, uint64_t chunk) {
    if (gives(self)) cpu::stream_copy(engine_.stages().result(self, chunk), data + at(k), length(k));
  };
  const auto take = [&](uint64_t k, uint64_t chunk) {
    for (int32_t rank = 0; rank < engine_.size(); ++rank)
      if (gives(rank) && (rank != self || place(rank) != data))
        copy_bytes(place(rank) + at(k), engine_.stages().result(rank, chunk), length(k));
  };
  run_chunks(sequence, Chunks(engine_, false, true, giver), bytes, kStageBytes,
             ChunkWork{[](uint64_t, uint64_t) {}, give, take});
}

void ShmTransport::all_gather(const Tensor& input, const Tensor& output, void*) {
  const int64_t bytes = input.bytes();
  const bool small = bytes <= kInlineBytes;
  const uint64_t sequence =
      engine_.meet(collective::stamp_of(collective::Collective::kAllGather, input), small ? bytes : 0, [&](Slot& slot) {
        if (small)
          copy_bytes(slot.payload, input.data, bytes);
        else
          slot.offset = engine_.mesh().own->whole_place_of(input.data, bytes);
      });
  const auto place = [&](int32_t peer) { return output.data + peer * bytes; };
  if (small || all_in_reach(sequence)) {
    for (int32_t peer = 0; peer < engine_.size(); ++peer) {
      const std::byte* source = small ? engine_.slot(peer, sequence).payload : peer_data(peer, sequence);
      if (bytes > 0 && source != place(peer)) std::memmove(place(peer), source, static_cast<size_t>(bytes));
    }
    if (small)
      engine_.leave(sequence);
    else
      finish_and_wait(sequence);
    return;
  }
  engine_.leave(sequence);
  give_staged(sequence, input.data, bytes, Chunks::kAll, place);
}

void ShmTransport::reduce_scatter(const Tensor& input, const Tensor& output, ddp_reduce op, void*) {
  const int64_t element = dtype_size(output.dtype);
  const uint64_t sequence =
      engine_.meet(collective::stamp_of(collective::Collective::kReduceScatter, output, op), 0,
                   [&](Slot& slot) { slot.offset = engine_.mesh().own->whole_place_of(input.data, input.bytes()); });
  out_[0] = output.data;
  if (all_in_reach(sequence)) {
    for (int32_t rank = 0; rank < engine_.size(); ++rank)
      input_of(rank) = peer_data(rank, sequence) + engine_.rank() * output.bytes();
    add(rule(output, op), 1, output.count);
    finish_and_wait(sequence);
    return;
  }
  engine_.leave(sequence);
  // A chunk holds the same stretch of every rank's part, one after the other.
  const int64_t step = std::max<int64_t>(1, kStageBytes / element / engine_.size() / 16 * 16);
  const int32_t self = engine_.rank();
  const auto length = [&](uint64_t k) { return std::min(step, output.count - static_cast<int64_t>(k) * step); };
  const auto at = [&](uint64_t k, int32_t part) {
    return input.data + part * output.bytes() + static_cast<int64_t>(k) * step * element;
  };
  const auto fill = [&](uint64_t k, uint64_t chunk) {
    for (int32_t part = 0; part < engine_.size(); ++part)
      if (part != self)
        cpu::stream_copy(engine_.stages().stage(self, chunk) + part * step * element, at(k, part), length(k) * element);
  };
  const auto add = [&](uint64_t k, uint64_t chunk) {
    for (int32_t rank = 0; rank < engine_.size(); ++rank)
      input_of(rank) = rank == self ? at(k, self) : engine_.stages().stage(rank, chunk) + self * step * element;
    out_[0] = output.data + static_cast<int64_t>(k) * step * element;
    this->add(rule(output, op), 1, length(k));
  };
  run_chunks(sequence, Chunks(engine_, true, false), output.count, step, ChunkWork{fill, add, [](uint64_t, uint64_t) {}});
}

void ShmTransport::broadcast(const Tensor& tensor, int32_t root, void*) {
  const int64_t bytes = tensor.bytes();
  const bool small = bytes <= kInlineBytes;
  const bool is_root = root == engine_.rank();
  const uint64_t sequence =
      engine_.meet(collective::stamp_of(collective::Collective::kBroadcast, tensor, DDP_SUM, root), 0, [&](Slot& slot) {
        if (small && is_root) copy_bytes(slot.payload, tensor.data, bytes);
        if (!small && is_root) slot.offset = engine_.mesh().own->whole_place_of(tensor.data, bytes);
      });
  const Slot& source = engine_.slot(root, sequence);
  if (small || source.offset != kNotInReach) {
    if (!is_root) copy_bytes(tensor.data, small ? source.payload : peer_data(root, sequence), bytes);
    if (small)
      engine_.leave(sequence);
    else
      finish_and_wait(sequence);
    return;
  }
  engine_.leave(sequence);
  give_staged(sequence, tensor.data, bytes, root, [&](int32_t) { return tensor.data; });
}

}  // namespace

std::unique_ptr<collective::Transport> make_transport(const collective::TransportContext& context, bool threads,
                                                      os::Deadline deadline) {
  Mesh mesh =
      threads ? connect_threads(*context.control, deadline)
              : connect_processes(*context.control, Patience{deadline, [&] { context.failure->check(); }}, context.arena);
  return std::make_unique<ShmTransport>(std::move(mesh), context);
}

}  // namespace ddp::shm
