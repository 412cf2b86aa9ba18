// SPDX-License-Identifier: Apache-2.0
// Several hosts with several ranks each: sums with the bits of one reduction over all ranks with gradients in any memory,
// and notes that every rank learns. Skipped with a printed reason when the Gloo module is not there.
//
// "--worker": one rank of a group that is started from outside (hierarchy_netns_test.sh), with the group's real choice of
// transport. "--worker TIMEOUT_MS": one of four that add up 4 MiB (slow_link_netns_test.sh).

#include "support/check.hpp"
#include "support/group_world.hpp"
#include "support/host_world.hpp"
#include "support/values.hpp"

const Placement kPlacements[] = {"aabb", "abcd", "abab", "aaabbb", "abbccb"};

ddp_case(sums_have_the_bits_of_one_reduction) {
  struct Case {
    ddp_dtype dtype;
    ddp_reduce op;
  };
  for (const Placement& placement : kPlacements)
    Run(placement, [&](ForkHub& hub, int rank, Reporter&) {
      Child child(hub, placement, rank);
      for (const Case& way :
           {Case{DDP_F32, DDP_AVERAGE}, Case{DDP_F16, DDP_SUM}, Case{DDP_I32, DDP_MIN}, Case{DDP_I64, DDP_AVERAGE}})
        for (const int64_t count : {0, 1, 7, 1000, 65'537, 1'000'003}) {
          if (count > 100'000 && way.dtype != DDP_F32) continue;
          const auto inputs = random_inputs(ranks_of(placement), way.dtype, count, 9);
          const Bytes wanted = reduced(inputs, way.dtype, way.op, count);
          Bytes mine = inputs[static_cast<size_t>(rank)];
          void* shared = child->arena()->alloc(static_cast<int64_t>(mine.size()) + 1);
          if (!mine.empty()) std::memcpy(shared, mine.data(), mine.size());
          child->all_reduce(flat_tensor(mine.data(), way.dtype, count), way.op);
          const std::string what = placement + ": " + std::to_string(count) + " " + dtype_name(way.dtype);
          expect(mine == wanted, what + ", private");
          // Some ranks in shared memory, some not: no rank needs to know.
          child->all_reduce(flat_tensor(rank % 2 == 0 ? shared : mine.data(), way.dtype, count), DDP_MAX);
          static_cast<void>(child->arena()->free(shared));
        }
      return std::string();
    }).expect_success();
}

ddp_case(shared_memory_is_reduced_in_place_with_the_same_bits) {
  for (const Placement& placement : kPlacements)
    Run(placement, [&](ForkHub& hub, int rank, Reporter&) {
      Child child(hub, placement, rank);
      for (const int64_t count : {1, 65'537, 2'200'001}) {  // the last is more than one exchange
        const auto inputs = random_inputs(ranks_of(placement), DDP_F32, count, 4);
        auto* mine = static_cast<std::byte*>(child->arena()->alloc(count * 4));
        std::memcpy(mine, inputs[static_cast<size_t>(rank)].data(), static_cast<size_t>(count) * 4);
        Bytes copy = inputs[static_cast<size_t>(rank)];
        const bool in_place = rank != 1;
        child->all_reduce(flat_tensor(in_place ? mine : copy.data(), DDP_F32, count), DDP_AVERAGE);
        const Bytes wanted = reduced(inputs, DDP_F32, DDP_AVERAGE, count);
        expect(wanted.empty() || std::memcmp(in_place ? mine : copy.data(), wanted.data(), wanted.size()) == 0,
               placement + " " + std::to_string(count));
        static_cast<void>(child->arena()->free(mine));
      }
      return std::string();
    }).expect_success();
}

ddp_case(the_other_collectives_work_too) {
  for (const Placement placement : {"aabb", "abaa"})
    Run(placement, [&](ForkHub& hub, int rank, Reporter&) {
      Child child(hub, placement, rank);
      for (const int64_t count : {1, 100'000}) {
        const auto inputs = random_inputs(4, DDP_F32, count, 2);
        Bytes all(static_cast<size_t>(16 * count)), mine = inputs[static_cast<size_t>(rank)];
        child->all_gather(flat_tensor(mine.data(), DDP_F32, count), flat_tensor(all.data(), DDP_F32, 4 * count));
        for (size_t r = 0; r < 4; ++r)
          expect(std::memcmp(all.data() + r * mine.size(), inputs[r].data(), mine.size()) == 0, "gathered part");
        Bytes part(mine.size());
        child->reduce_scatter(flat_tensor(all.data(), DDP_F32, 4 * count), flat_tensor(part.data(), DDP_F32, count),
                              DDP_MAX);
        expect(part == inputs[static_cast<size_t>(rank)], "the largest of four equal parts");
        for (int root = 0; root < 4; ++root) {
          mine = inputs[static_cast<size_t>(rank)];
          child->broadcast(flat_tensor(mine.data(), DDP_F32, count), root);
          expect(mine == inputs[static_cast<size_t>(root)], "broadcast");
        }
        child->barrier();
      }
      return std::string();
    }).expect_success();
}

// A bucket of pieces of which each rank has some in the group's memory and some of its own, by `shared(rank, piece)`.
class Gradients : NotCopied {
 public:
  static constexpr int64_t kCounts[] = {1, 7, 1000, 65'537, 0, 100'003};
  static constexpr size_t kPieces = std::size(kCounts);

  Gradients(collective::Transport& transport, int rank, int ranks, uint64_t seed,
            const std::function<bool(int, size_t)>& shared)
      : transport_(transport), rank_(static_cast<size_t>(rank)) {
    spec_.index = 3;
    spec_.rule = cpu::ReduceRule{DDP_F32, DDP_AVERAGE, ranks};
    spec_.plan_hash = 99;
    for (size_t piece = 0; piece < kPieces; ++piece) {
      inputs_.push_back(random_inputs(ranks, DDP_F32, kCounts[piece], seed + piece));
      wanted_.push_back(reduced(inputs_.back(), DDP_F32, DDP_AVERAGE, kCounts[piece]));
      own_.emplace_back(wanted_.back().size() + 1);
      const bool lent = shared(rank, piece);
      memory_.push_back(lent ? transport.arena()->alloc(kCounts[piece] * 4 + 1) : nullptr);
      spec_.pieces.push_back({lent ? static_cast<std::byte*>(memory_.back()) : own_.back().data(), kCounts[piece], false});
    }
    fill();
  }
  ~Gradients() {
    for (void* memory : memory_)
      if (memory != nullptr) static_cast<void>(transport_.arena()->free(memory));
  }

  [[nodiscard]] const collective::BucketSpec& spec() const { return spec_; }
  [[nodiscard]] std::byte* data(size_t piece) const { return spec_.pieces[piece].data; }
  void fill() {
    for (size_t piece = 0; piece < kPieces; ++piece)
      if (!input(piece).empty()) std::memcpy(data(piece), input(piece).data(), input(piece).size());
  }
  void expect_reduced(size_t piece, const std::string& what) const {
    expect_bytes(piece, wanted_[piece], what + ": reduced");
  }
  void expect_untouched(size_t piece, const std::string& what) const {
    expect_bytes(piece, input(piece), what + ": untouched");
  }

 private:
  [[nodiscard]] const Bytes& input(size_t piece) const { return inputs_[piece][rank_]; }
  void expect_bytes(size_t piece, const Bytes& bytes, const std::string& what) const {
    expect(bytes.empty() || std::memcmp(data(piece), bytes.data(), bytes.size()) == 0,
           what + ", piece " + std::to_string(piece));
  }

  collective::Transport& transport_;
  size_t rank_;
  collective::BucketSpec spec_;
  std::vector<std::vector<Bytes>> inputs_;
  std::vector<Bytes> wanted_, own_;
  std::vector<void*> memory_;
};

bool mixed(int rank, size_t piece) { return (static_cast<size_t>(rank) + piece) % 3 != 0; }

ddp_case(buckets_are_reduced_wherever_their_gradients_lie) {
  for (const Placement& placement : kPlacements)
    for (const int way : {0, 1, 2})
      Run(placement, [&](ForkHub& hub, int rank, Reporter&) {
        Child child(hub, placement, rank);
        const auto shared = [&](int r, size_t piece) { return way == 0 || (way == 2 && mixed(r, piece)); };
        Gradients first(*child, rank, ranks_of(placement), 10, shared);
        Gradients second(*child, rank, ranks_of(placement), 20, shared);
        const auto one = child->prepare(first.spec());
        const auto two = child->prepare(second.spec());
        for (int pass = 0; pass < 35; ++pass) {  // more buckets than announcements have slots
          if (pass < 3) first.fill(), second.fill();
          const collective::BucketHeader all_used{false, {0x3f}};
          one->start(all_used);
          two->start(all_used);
          one->finish();
          two->finish();
          for (size_t piece = 0; piece < Gradients::kPieces && pass < 3; ++piece) {
            first.expect_reduced(piece, placement + " " + one->describe());
            second.expect_reduced(piece, placement + " " + two->describe());
          }
        }
        return std::string();
      }).expect_success();
}

ddp_case(pieces_that_nobody_uses_and_void_buckets_stay_untouched) {
  for (const Placement& placement : kPlacements)
    Run(placement, [&](ForkHub& hub, int rank, Reporter&) {
      Child child(hub, placement, rank);
      Gradients gradients(*child, rank, ranks_of(placement), 30, mixed);
      const auto bucket = child->prepare(gradients.spec());
      // Piece 3 is used by the last rank alone, piece 2 by no rank.
      const bool last = rank + 1 == ranks_of(placement);
      bucket->start(collective::BucketHeader{false, {last ? 0x3bU : 0x33U}});
      bucket->finish();
      expect(!bucket->header().incomplete && bucket->header().used == std::vector<uint64_t>{0x3b},
             placement + ": every rank learns who uses what");
      for (size_t piece = 0; piece < Gradients::kPieces; ++piece)
        piece == 2 ? gradients.expect_untouched(piece, placement) : gradients.expect_reduced(piece, placement);
      for (int missing = 0; missing < ranks_of(placement); ++missing) {
        gradients.fill();
        bucket->start(collective::BucketHeader{rank == missing, {0x3f}});
        bucket->finish();
        expect(bucket->header().incomplete, placement + ": every rank learns that something is missing");
        for (size_t piece = 0; piece < Gradients::kPieces; ++piece) gradients.expect_untouched(piece, placement);
      }
      bucket->start(collective::BucketHeader{false, {0x3f}});
      bucket->finish();
      for (size_t piece = 0; piece < Gradients::kPieces; ++piece) gradients.expect_reduced(piece, placement);
      return std::string();
    }).expect_success();
}

ddp_case(a_gradient_may_move_if_it_is_the_ranks_own) {
  Run("aab", [](ForkHub& hub, int rank, Reporter&) {
    Child child(hub, "aab", rank);
    Gradients gradients(*child, rank, 3, 50, [](int r, size_t) { return r == 0; });
    const auto bucket = child->prepare(gradients.spec());
    Bytes elsewhere(4000);
    std::memcpy(elsewhere.data(), gradients.data(2), elsewhere.size());
    expect(bucket->set_address(2, elsewhere.data()) == (rank != 0), "only private memory moves");
    bucket->start(collective::BucketHeader{false, {0x3f}});
    bucket->finish();
    if (rank == 0) return std::string();
    gradients.expect_untouched(2, "the old place");
    std::memcpy(gradients.data(2), elsewhere.data(), elsewhere.size());
    gradients.expect_reduced(2, "the new place");
    return std::string();
  }).expect_success();
}

// What the busiest host sends for a large sum, over 2 (h - 1) / h of the array; the same bits wherever the ranks run.
ddp_case(a_host_sends_its_nodes_once_up_and_the_sum_once_down) {
  constexpr int64_t kCount = 240'000;
  struct Case {
    Placement placement;
    double ratio;
    ddp_sum_order order;
  };
  for (const Case& one : {Case{"aabb", 1.0, DDP_SUM_ORDER_BY_RANK}, Case{"aaaabbbb", 1.0, DDP_SUM_ORDER_BY_RANK},
                          Case{"aabbccdd", 1.0, DDP_SUM_ORDER_BY_RANK}, Case{"abcdefgh", 1.0, DDP_SUM_ORDER_BY_RANK},
                          Case{"aaabbbbb", 1.5, DDP_SUM_ORDER_BY_RANK}, Case{"aaabbb", 1.5, DDP_SUM_ORDER_BY_RANK},
                          Case{"abababab", 2.5, DDP_SUM_ORDER_BY_RANK}, Case{"aaabbb", 1.0, DDP_SUM_ORDER_BY_HOST},
                          Case{"aaaaabbbbb", 1.0, DDP_SUM_ORDER_BY_HOST}})
    Run(one.placement, [&](ForkHub& hub, int rank, Reporter& report) {
      Child child(hub, one.placement, rank, 20'000, one.order);
      const auto inputs = random_inputs(ranks_of(one.placement), DDP_F32, kCount, 9);
      Bytes mine = inputs[static_cast<size_t>(rank)];
      child->all_reduce(flat_tensor(mine.data(), DDP_F32, kCount), DDP_AVERAGE);
      if (one.order == DDP_SUM_ORDER_BY_RANK)
        expect(mine == reduced(inputs, DDP_F32, DDP_AVERAGE, kCount), one.placement + ": the bits of one host");
      child->barrier();
      int64_t sent = child->sent_bytes();  // of all ranks, as a sum of integers
      std::vector<int64_t> all(one.placement.size());
      child->all_gather(flat_tensor(reinterpret_cast<std::byte*>(&sent), DDP_I64, 1),
                        flat_tensor(reinterpret_cast<std::byte*>(all.data()), DDP_I64, ranks_of(one.placement)));
      std::map<char, int64_t> of_host;
      for (size_t r = 0; r < all.size(); ++r) of_host[one.placement[r]] += all[r];
      int64_t most = 0;
      for (const auto& [host, bytes] : of_host) most = std::max(most, bytes);
      const auto hosts = static_cast<double>(of_host.size());
      const double ratio = static_cast<double>(most) / (2 * (hosts - 1) / hosts * kCount * 4);
      expect(std::abs(ratio - one.ratio) < 0.01, one.placement + ": " + std::to_string(ratio) + " of the ideal bytes");
      static_cast<void>(report);
      return std::string();
    }).expect_success();
}

// One rank of a group that another program started: prints "rank 2 of 4: sums agree over GLOO".
int work() {
  const auto group = group::Group::create(nullptr, world_options());
  const int32_t size = group->size();
  for (const int64_t count : {1, 1000, 65'537, 1'000'003}) {
    const auto inputs = random_inputs(size, DDP_F32, count, 7);
    Bytes mine = inputs[static_cast<size_t>(group->rank())];
    group->all_reduce(flat_tensor(mine.data(), DDP_F32, count), DDP_AVERAGE);
    expect(mine == reduced(inputs, DDP_F32, DDP_AVERAGE, count), "the sum over all hosts");
    group->broadcast(flat_tensor(mine.data(), DDP_F32, count), size - 1);
    group->barrier();
  }
  std::printf("rank %d of %d: sums agree over %s\n", group->rank(), size,
              group->backend() == DDP_BACKEND_GLOO ? "GLOO" : "something else");
  return 0;
}

// One of four ranks, of which none computes while another one waits.
int work_within(int64_t timeout_ms) {
  constexpr int64_t kCount = 1 << 20;
  const auto inputs = random_inputs(4, DDP_F32, kCount, 7);
  ddp_group_options options = world_options();
  options.timeout_ms = timeout_ms;
  const auto group = group::Group::create(nullptr, options);
  Bytes mine = inputs[static_cast<size_t>(group->rank())];
  group->all_reduce(flat_tensor(mine.data(), DDP_F32, kCount), DDP_AVERAGE);
  group->barrier();
  expect(mine == reduced(inputs, DDP_F32, DDP_AVERAGE, kCount), "the sum over all hosts");
  return 0;
}

ddp_before_cases({
  need_gloo();
  if (argc > 1 && std::strcmp(argv[1], "--worker") == 0) try {
      std::exit(argc > 2 ? work_within(std::atoll(argv[2])) : work());
    } catch (const std::exception& error) {
      std::printf("failed: %s\n", error.what());
      std::exit(1);
    }
});
