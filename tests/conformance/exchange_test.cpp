// SPDX-License-Identifier: Apache-2.0
// One exchange in all of its combinations, over shared memory with ranks as threads: sums, slices, values from their owners,
// and the step of a sharded optimizer in one sweep, with inputs and outputs in any memory. The oracle adds by hand; values
// are small integers, so sums are exact.

#include "exchange/transport.hpp"
#include "group/channels.hpp"
#include "support/check.hpp"
#include "support/group_world.hpp"

// One piece is larger than two chunks, so that it is cut and both slots of a stage are used again.
const std::vector<int64_t> kCounts = {7, 150'001, 1, 40, 5'000};
constexpr size_t kUnused = 3;  // no rank contributes to it

float gradient(int rank, size_t piece, int64_t i) {
  return static_cast<float>((rank + 1) * (1 + (i + static_cast<int64_t>(piece)) % 13));
}
float sum_of(int size, size_t piece, int64_t i) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += gradient(rank, piece, i);
  return sum;
}
float old_value(size_t piece, int64_t i) { return static_cast<float>(i % 5) + static_cast<float>(piece); }

Ownership cut(int size) {
  std::vector<Ownership::Slice> slices(static_cast<size_t>(size));
  for (size_t piece = 0; piece < kCounts.size(); ++piece)
    for (int64_t rank = 0; rank < size; ++rank) {
      const int64_t first = kCounts[piece] * rank / size, end = kCounts[piece] * (rank + 1) / size;
      if (end > first)
        slices[static_cast<size_t>(rank)].push_back(OwnedSpan{static_cast<int32_t>(piece), first, end - first});
    }
  return Ownership::divided(std::move(slices));
}

/// Arrays of one rank: in memory that all reach, or private.
struct Arrays : NotCopied {
  Arrays(group::Group& group, bool in_reach) : group_(group), in_reach_(in_reach) {
    for (const int64_t count : kCounts) {
      kept_.emplace_back(static_cast<size_t>(count));
      data.push_back(in_reach ? static_cast<float*>(group.memory().alloc(count * 4)) : kept_.back().data());
    }
  }
  ~Arrays() {
    for (float* each : data)
      if (in_reach_) group_.memory().free(each);
  }
  template <class Value>
  void fill(Value&& value) {
    for (size_t piece = 0; piece < kCounts.size(); ++piece)
      for (int64_t i = 0; i < kCounts[piece]; ++i) data[piece][i] = value(piece, i);
  }
  [[nodiscard]] std::vector<collective::BucketSpec::Piece> pieces() const {
    std::vector<collective::BucketSpec::Piece> pieces;
    for (size_t piece = 0; piece < kCounts.size(); ++piece)
      pieces.push_back(collective::BucketSpec::Piece{reinterpret_cast<std::byte*>(data[piece]), kCounts[piece], false});
    return pieces;
  }
  std::vector<float*> data;

 private:
  group::Group& group_;
  bool in_reach_;
  std::vector<std::vector<float>> kept_;
};

/// value -= gradient, and a record of its calls.
class Descent {
 public:
  Descent(const Arrays* gradients, Arrays& values) : gradients_(gradients), values_(values) {}
  [[nodiscard]] collective::SliceWork as_work() {
    return {[this](int32_t piece, int64_t first, int64_t count) { on_block(piece, first, count); }, {}};
  }
  void on_block(int32_t piece, int64_t first, int64_t count) noexcept {
    const auto at = static_cast<size_t>(piece);
    for (int64_t i = first; i < first + count; ++i)
      values_.data[at][i] -= gradients_ != nullptr ? gradients_->data[at][i] : 1;
    seen += count;
  }
  int64_t seen = 0;

 private:
  const Arrays* gradients_;
  Arrays& values_;
};

collective::BucketHeader note_of(bool is_void) {
  collective::BucketHeader note;
  note.incomplete = is_void;
  note.used.assign(1, 0);
  for (size_t piece = 0; piece < kCounts.size(); ++piece)
    if (piece != kUnused) note.used[0] |= uint64_t{1} << piece;
  return note;
}

collective::ExchangeSpec spec_of(int size, const Arrays& arrays) {
  collective::ExchangeSpec spec;
  spec.rule = cpu::ReduceRule{DDP_F32, DDP_SUM, size};
  spec.pieces = arrays.pieces();
  return spec;
}

/// All elements of the arrays, or of a slice, against what they should be.
template <class Wanted>
void expect_all(const Arrays& arrays, const std::string& what, Wanted&& wanted) {
  for (size_t piece = 0; piece < kCounts.size(); ++piece)
    for (int64_t i = 0; i < kCounts[piece]; ++i)
      if (arrays.data[piece][i] != wanted(piece, i)) return expect_equal(arrays.data[piece][i], wanted(piece, i), what);
}

/// Started and finished once; polled in small shares if asked. `is_void`: this rank's header.
void run(collective::BucketOperation& operation, bool is_void, bool polled) {
  operation.start(note_of(is_void));
  while (polled && operation.advance(1'000) != collective::Progress::kDone) std::this_thread::yield();
  operation.finish();
}

ddp_ranks_case(run_groups, sums_come_to_all, 1, 2, 3, 5) {
  const group::Channel channel(group);
  if (group.size() == 1) return;  // nothing to add
  for (const bool in_reach : {true, false}) {
    Arrays gradients(group, in_reach);
    const auto operation = channel.prepare(spec_of(group.size(), gradients));
    for (int pass = 0; pass < 4; ++pass) {
      gradients.fill([&](size_t piece, int64_t i) { return gradient(rank, piece, i); });
      run(*operation, pass == 2 && rank == 0, pass == 1);
      expect_all(gradients, "sum", [&](size_t piece, int64_t i) {
        return pass == 2 || piece == kUnused ? gradient(rank, piece, i) : sum_of(group.size(), piece, i);
      });
    }
    group.barrier();
  }
}

ddp_ranks_case(run_groups, owners_get_their_slice, 1, 2, 3, 5) {
  const group::Channel channel(group);
  const Ownership ownership = cut(group.size());
  for (const bool in_reach : {true, false}) {
    Arrays gradients(group, in_reach), counted(group, false);
    Descent work(nullptr, counted);
    collective::ExchangeSpec spec = spec_of(group.size(), gradients);
    spec.gives = false;
    spec.ownership = &ownership;
    spec.work = work.as_work();
    const auto operation = channel.prepare(spec);
    for (int pass = 0; pass < 3; ++pass) {
      gradients.fill([&](size_t piece, int64_t i) { return gradient(rank, piece, i); });
      work.seen = 0;
      run(*operation, pass == 2 && rank == 0, pass == 1);
      expect_equal(work.seen, pass == 2 ? 0 : ownership.count(rank) - count_of(ownership.parts(rank, kUnused)),
                   "the work sees the own slice once");
      for (const OwnedSpan& span : ownership.slice(rank))
        for (int64_t i = span.first; i < span.first + span.count; ++i) {
          const auto piece = static_cast<size_t>(span.piece);
          const bool summed = pass != 2 && piece != kUnused && group.size() > 1;
          expect_equal(gradients.data[piece][i], summed ? sum_of(group.size(), piece, i) : gradient(rank, piece, i),
                       "sum of the own slice");
        }
    }
    group.barrier();
  }
}

ddp_ranks_case(run_groups, values_come_from_their_owners, 1, 2, 3, 5) {
  const group::Channel channel(group);
  const Ownership ownership = cut(group.size());
  for (const bool in_reach : {true, false})
    for (const bool works : {true, false}) {
      Arrays values(group, in_reach);
      Descent work(nullptr, values);
      collective::ExchangeSpec spec = spec_of(group.size(), values);
      spec.collects = false;
      spec.ownership = &ownership;
      if (works) spec.work = work.as_work();
      const auto operation = channel.prepare(spec);
      const auto owner_of = [&](size_t piece, int64_t i) {
        for (int32_t owner = 0; owner < group.size(); ++owner)
          for (const OwnedSpan& span : ownership.parts(owner, static_cast<int32_t>(piece)))
            if (i >= span.first && i < span.first + span.count) return owner;
        return -1;
      };
      for (int pass = 0; pass < 3; ++pass) {
        values.fill([&](size_t piece, int64_t i) { return old_value(piece, i) + (works ? 0 : static_cast<float>(rank)); });
        run(*operation, pass == 2 && rank == 0, pass == 1);
        expect_all(values, "value", [&](size_t piece, int64_t i) {
          const bool given = pass != 2 && piece != kUnused;
          const float now = works ? -1 : static_cast<float>(owner_of(piece, i));
          const float before = works ? 0 : static_cast<float>(rank);
          return old_value(piece, i) + (given ? now : before);
        });
      }
      group.barrier();
    }
}

/// Gradients and values each in reach or not; also a list of which only a part is.
ddp_ranks_case(run_groups, a_step_is_one_sweep, 1, 2, 3, 5) {
  const group::Channel channel(group);
  const Ownership ownership = cut(group.size());
  for (int place = 0; place < 8; ++place) {
    Arrays gradients(group, (place & 1) != 0), values(group, (place & 2) != 0), elsewhere(group, (place & 1) == 0);
    if ((place & 4) != 0) std::swap(gradients.data[1], elsewhere.data[1]);
    Descent work(&gradients, values);
    collective::ExchangeSpec spec = spec_of(group.size(), gradients);
    spec.outputs = values.pieces();
    spec.ownership = &ownership;
    spec.work = work.as_work();
    const auto operation = channel.prepare(spec);
    values.fill(old_value);
    int steps = 0;
    for (int pass = 0; pass < 4; ++pass) {
      gradients.fill([&](size_t piece, int64_t i) { return gradient(rank, piece, i); });
      run(*operation, pass == 2 && rank == 0, pass == 1);
      if (pass != 2) ++steps;
      expect_all(values, "value after the step", [&](size_t piece, int64_t i) {
        return old_value(piece, i) - (piece == kUnused ? 0 : static_cast<float>(steps) * sum_of(group.size(), piece, i));
      });
    }
    if ((place & 4) != 0) std::swap(gradients.data[1], elsewhere.data[1]);
    group.barrier();
  }
}
