// SPDX-License-Identifier: Apache-2.0
// The phases of a sharded optimizer's step, with ranks as threads over the in-process endpoint: gradients to the owners of
// slices, values back from them, and the bytes that it takes.

#include "support/check.hpp"
#include "support/socket_world.hpp"

// Slices as a sharded optimizer has them: rank r owns a stretch that crosses pieces.
Ownership slices_of(const std::vector<int64_t>& lengths, int ranks) {
  int64_t total = 0;
  for (const int64_t length : lengths) total += length;
  std::vector<Ownership::Slice> slices(static_cast<size_t>(ranks));
  int64_t before = 0;
  for (size_t p = 0; p < lengths.size(); ++p) {
    for (int r = 0; r < ranks; ++r) {
      const int64_t begin = std::max(before, total * r / ranks),
                    end = std::min(before + lengths[p], total * (r + 1) / ranks);
      if (begin < end) slices[static_cast<size_t>(r)].push_back({static_cast<int32_t>(p), begin - before, end - begin});
    }
    before += lengths[p];
  }
  return Ownership::divided(std::move(slices));
}

struct Doubling {
  std::vector<std::vector<float>>* values = nullptr;
  int64_t seen = 0;
  void on_block(int32_t piece, int64_t first, int64_t count) noexcept {
    seen += count;
    for (int64_t i = first; i < first + count; ++i) (*values)[static_cast<size_t>(piece)][static_cast<size_t>(i)] *= 2;
  }
  [[nodiscard]] collective::SliceWork as_work() {
    return {[this](int32_t piece, int64_t first, int64_t count) { on_block(piece, first, count); }, {}};
  }
};

// Gradients to the owners, values back from them: 2 S (n - 1) / n in all, and no result of the first is sent.
ddp_case(a_sharded_step_sends_each_byte_once_each_way) {
  const std::vector<int64_t> lengths{5, 100'000, 0, 1000, 3, 70'000};
  const int64_t total = 171'008;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const Ownership slices = slices_of(lengths, ranks);
    RailWorld world(ranks);
    world.run([&](int rank, collective::Transport& transport) {
      std::vector<std::vector<float>> grads, values;
      collective::ExchangeSpec spec = spec_of({}, DDP_F32, ranks);
      collective::ExchangeSpec publish;
      for (const int64_t length : lengths) {
        grads.emplace_back(static_cast<size_t>(length), static_cast<float>(rank));
        values.emplace_back(static_cast<size_t>(length), 1.0F);
      }
      for (size_t p = 0; p < lengths.size(); ++p) {
        spec.pieces.push_back({reinterpret_cast<std::byte*>(grads[p].data()), lengths[p], false});
        publish.pieces.push_back({reinterpret_cast<std::byte*>(values[p].data()), lengths[p], false});
      }
      Doubling sums, doubled;
      sums.values = &grads;
      doubled.values = &values;
      spec.gives = publish.collects = false;
      spec.ownership = publish.ownership = &slices;
      spec.work = sums.as_work();
      publish.work = doubled.as_work();
      const auto scatter = transport.prepare(spec);
      const auto publication = transport.prepare(publish);
      for (int step = 0; step < 2; ++step) {
        for (auto& grad : grads) std::fill(grad.begin(), grad.end(), static_cast<float>(rank));
        const int64_t before = transport.sent_bytes();
        scatter->start(collective::BucketHeader{false, {0b101111}});  // no rank uses piece 4
        scatter->finish();
        for (const OwnedSpan& span : slices.slice(rank))
          for (int64_t i = span.first; i < span.first + span.count; ++i)
            expect_equal(grads[static_cast<size_t>(span.piece)][static_cast<size_t>(i)],
                         span.piece == 4 ? static_cast<float>(rank) : static_cast<float>(ranks - 1),
                         "twice the mean, by the owner");
        publication->start(collective::BucketHeader{false, {0b101111}});
        publication->finish();
        for (size_t p = 0; p < values.size(); ++p)
          for (const float value : values[p])
            expect_equal(value, p == 4 ? 1.0F : step == 0 ? 2.0F : 4.0F, "the owner's value on all ranks");
        const int64_t mine = (total * (rank + 1) / ranks - total * rank / ranks) * 4;
        const int64_t least = total * 4 - mine + mine * (ranks - 1), headers = transport.sent_bytes() - before - least;
        expect(headers > 0 && headers < 512 * ranks, "bytes sent: " + std::to_string(headers) + " beside values");
      }
      expect(sums.seen == doubled.seen && sums.seen > 0, "work on the own slice alone");
    });
  }
}
