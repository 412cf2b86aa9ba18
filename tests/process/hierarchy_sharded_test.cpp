// SPDX-License-Identifier: Apache-2.0
// The two halves of a sharded step between hosts of several ranks: gradients to the owners of slices, and values from them
// to all. Skipped with a printed reason when the Gloo module is not there.

#include "support/check.hpp"
#include "support/host_world.hpp"
#include "support/values.hpp"

struct Doubling {
  std::vector<std::byte*> values;
  void on_block(int32_t piece, int64_t first, int64_t count) noexcept {
    auto* at = reinterpret_cast<float*>(values[static_cast<size_t>(piece)]);
    for (int64_t i = first; i < first + count; ++i) at[i] *= 2;
  }
  [[nodiscard]] collective::SliceWork as_work() {
    return {[this](int32_t piece, int64_t first, int64_t count) { on_block(piece, first, count); }, {}};
  }
};

// A sharded optimizer: gradients to the owners, values back. A host sends 2 (h - 1) / h of the array, whatever its number of
// ranks.
ddp_case(a_sharded_step_crosses_once_each_way) {
  constexpr int64_t kCount = 96'000;
  for (const Placement placement : {"aabb", "aabbccdd", "abab", "aab"})
    Run(placement, [&](ForkHub& hub, int rank, Reporter&) {
      Child child(hub, placement, rank);
      const int ranks = ranks_of(placement);
      const auto inputs = random_inputs(ranks, DDP_F32, kCount, 12);
      const Bytes wanted = reduced(inputs, DDP_F32, DDP_AVERAGE, kCount);
      std::vector<Bytes> grads{inputs[static_cast<size_t>(rank)]}, values{random_values(DDP_F32, kCount, 3)};
      std::vector<Ownership::Slice> slices(static_cast<size_t>(ranks));
      for (int r = 0; r < ranks; ++r)
        slices[static_cast<size_t>(r)] = {{0, kCount * r / ranks, kCount * (r + 1) / ranks - kCount * r / ranks}};
      Doubling sums, doubled;
      sums.values = {grads[0].data()};
      doubled.values = {values[0].data()};
      const OwnedSpan own = slices[static_cast<size_t>(rank)][0];
      const Ownership owners = Ownership::divided(std::move(slices));
      collective::ExchangeSpec spec, publish;
      spec.rule = cpu::ReduceRule{DDP_F32, DDP_AVERAGE, ranks};
      spec.pieces = {{grads[0].data(), kCount, false}};
      spec.work = sums.as_work();
      publish.pieces = {{values[0].data(), kCount, false}};
      publish.work = doubled.as_work();
      spec.gives = publish.collects = false;
      spec.ownership = publish.ownership = &owners;
      const auto scatter = child->prepare(spec);
      const auto publication = child->prepare(publish);
      const int64_t before = child->sent_bytes();
      scatter->start(collective::BucketHeader{false, {1}});
      scatter->finish();
      for (int64_t i = own.first; i < own.first + own.count; ++i) {
        float is = 0, mean = 0;
        std::memcpy(&is, grads[0].data() + 4 * i, 4);
        std::memcpy(&mean, wanted.data() + 4 * i, 4);
        expect(is == 2 * mean, placement + ": the mean, and the work on it");
      }
      publication->start(collective::BucketHeader{false, {1}});
      publication->finish();
      Bytes twice = random_values(DDP_F32, kCount, 3);
      for (int64_t i = 0; i < kCount; ++i) {
        float value = 0;
        std::memcpy(&value, twice.data() + 4 * i, 4);
        value *= 2;
        std::memcpy(twice.data() + 4 * i, &value, 4);
      }
      expect(values[0] == twice, placement + ": the owners' values on all ranks");
      int64_t sent = child->sent_bytes() - before, all = sent;
      child->all_reduce(flat_tensor(reinterpret_cast<std::byte*>(&all), DDP_I64, 1), DDP_SUM);
      const int64_t hosts = placement == "aabbccdd" ? 4 : 2;
      if (placement == "aabb" || placement == "aabbccdd")
        expect(all - 2 * (hosts - 1) * kCount * 4 < 100'000 && all > 2 * (hosts - 1) * kCount * 4,
               placement + ": values of all hosts, and headers and frames of " + std::to_string(all));
      return std::string();
    }).expect_success();
}

// Values of a sharded optimizer, in the group's memory on some ranks and in private memory on others: all ranks get what the
// owners have after their work. A piece that is not used stays as it is on each rank; so does all of a void exchange.
ddp_case(values_are_given_wherever_they_lie) {
  constexpr int64_t kCounts[] = {1, 1000, 65'537, 0, 100'003};
  constexpr size_t kPieces = std::size(kCounts), kUnused = 1;
  for (const Placement placement : {"aabb", "abab", "aab"})
    Run(placement, [&](ForkHub& hub, int rank, Reporter&) {
      Child child(hub, placement, rank);
      const int ranks = ranks_of(placement);
      const auto initial = [&](int of, size_t piece) {
        return random_inputs(ranks, DDP_F32, kCounts[piece], 40 + piece)[static_cast<size_t>(of)];
      };
      std::vector<Bytes> own(kPieces);
      std::vector<void*> lent;
      std::vector<Ownership::Slice> slices(static_cast<size_t>(ranks));
      Doubling doubling;
      collective::ExchangeSpec spec;
      for (size_t piece = 0; piece < kPieces; ++piece) {
        own[piece].resize(static_cast<size_t>(4 * kCounts[piece] + 1));
        const bool lends = (static_cast<size_t>(rank) + piece) % 3 != 0;
        if (lends) lent.push_back(child->arena()->alloc(4 * kCounts[piece] + 1));
        doubling.values.push_back(lends ? static_cast<std::byte*>(lent.back()) : own[piece].data());
        spec.pieces.push_back({doubling.values.back(), kCounts[piece], false});
        for (int r = 0; r < ranks; ++r) {
          const int64_t begin = kCounts[piece] * r / ranks, end = kCounts[piece] * (r + 1) / ranks;
          if (begin < end) slices[static_cast<size_t>(r)].push_back({static_cast<int32_t>(piece), begin, end - begin});
        }
      }
      const Ownership owners = Ownership::divided(std::vector(slices));
      spec.ownership = &owners;
      spec.collects = false;
      spec.work = doubling.as_work();
      const auto exchange = child->prepare(spec);
      for (const bool is_void : {false, true, false}) {
        for (size_t piece = 0; piece < kPieces; ++piece)
          if (const Bytes bytes = initial(rank, piece); !bytes.empty())
            std::memcpy(doubling.values[piece], bytes.data(), bytes.size());
        exchange->start(collective::BucketHeader{is_void, {0b11111u & ~(1u << kUnused)}});
        exchange->finish();
        for (size_t piece = 0; piece < kPieces; ++piece) {
          Bytes wanted = initial(rank, piece);
          for (int r = 0; r < ranks && !is_void && piece != kUnused; ++r)
            for (const OwnedSpan& span : slices[static_cast<size_t>(r)]) {
              if (static_cast<size_t>(span.piece) != piece) continue;
              Bytes theirs = initial(r, piece);
              Doubling twice;
              twice.values.assign(kPieces, theirs.data());
              twice.on_block(span.piece, span.first, span.count);
              std::memcpy(wanted.data() + 4 * span.first, theirs.data() + 4 * span.first,
                          static_cast<size_t>(4 * span.count));
            }
          expect(wanted.empty() || std::memcmp(doubling.values[piece], wanted.data(), wanted.size()) == 0,
                 placement + ": piece " + std::to_string(piece) + (is_void ? " of a void exchange" : ""));
        }
      }
      child->barrier();
      for (void* const memory : lent) static_cast<void>(child->arena()->free(memory));
      return std::string();
    }).expect_success();
}

ddp_before_cases(need_gloo());
