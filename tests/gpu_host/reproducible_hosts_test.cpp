// SPDX-License-Identifier: Apache-2.0
// The group option `reproducible` between hosts: what a host sends is the sums of its nodes of the tree, and the bits stay
// those of host memory.
#include <cstdlib>

#include "bootstrap/failure.hpp"
#include "collective/nccl/nccl_transport.hpp"
#include "collective/nccl/tree_sum.hpp"
#include "gpu_host/reproducible_trainee.hpp"

namespace ddp::test {
namespace {

/// Ranks of the same number share a host.
struct Placement {
  std::vector<int32_t> host_of;
  std::string name;
  [[nodiscard]] int size() const { return static_cast<int>(host_of.size()); }
  [[nodiscard]] std::vector<std::vector<int32_t>> hosts() const {
    std::vector<std::vector<int32_t>> ranks;
    for (size_t rank = 0; rank < host_of.size(); ++rank) {
      const auto host = static_cast<size_t>(host_of[rank]);
      ranks.resize(std::max(ranks.size(), host + 1));
      ranks[host].push_back(static_cast<int32_t>(rank));
    }
    return ranks;
  }
};

const Placement kPairs{{0, 0, 1, 1}, "2 x 2"};
const Placement kUnequal{{0, 0, 0, 1, 1, 1, 1, 1}, "3 + 5"};
const Placement kByTurns{{0, 1, 0, 1, 0, 1}, "by turns"};
const Placement kFours{{0, 0, 0, 0, 1, 1, 1, 1}, "2 x 4"};

/// Every rank's part of a group whose ranks are said to be on these hosts.
void run_on_hosts(const Placement& placement, const std::function<void(group::Group&, int)>& body) {
  std::string list;
  for (const int32_t host : placement.host_of) list += (list.empty() ? "" : ",") + std::to_string(host);
  setenv("DDP_TEST_HOST", list.c_str(), 1);
  fake_gpu::set_hosts(placement.host_of);
  run_reproducible(placement.size(), body);
  unsetenv("DDP_TEST_HOST");
}

void collectives_have_the_bits_of_host_memory(void**) {
  for (const Placement& placement : {kPairs, kUnequal, kByTurns}) {
    const FakeGpus gpus(5);
    run_on_hosts(placement, [&](group::Group& group, int rank) {
      const GpuStream stream(rank);
      for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_I32, DDP_U8})
        for (const ddp_reduce op : {DDP_SUM, DDP_AVERAGE, DDP_MIN, DDP_MAX})
          for (const int64_t each : {7, 1500}) {
            const int64_t count = each * placement.size();
            const GroupBytes input = random_numbers(dtype, count, static_cast<uint64_t>(rank * 1000 + count));
            GroupBytes whole = input, source = input, own(input.size() / static_cast<size_t>(placement.size()));
            group.all_reduce(flat_tensor(whole.data(), dtype, count), op);
            group.reduce_scatter(flat_tensor(source.data(), dtype, count), flat_tensor(own.data(), dtype, each), op);
            GpuArray all(rank, static_cast<int64_t>(input.size())), part(rank, static_cast<int64_t>(own.size()));
            all.poke(input);
            group.reduce_scatter(all.tensor(group, dtype), part.tensor(group, dtype), op, stream.get());
            stream.synchronize();
            const std::string what =
                std::to_string(count) + " " + dtype_name(dtype) + ", op " + std::to_string(op) + ", " + placement.name;
            expect(part.peek<std::byte>() == own, "reduce-scatter of " + what);
            expect(all.peek<std::byte>() == input, "its input stays: " + what);
            group.all_reduce(all.tensor(group, dtype), op, stream.get());
            stream.synchronize();
            expect(all.peek<std::byte>() == whole, "all-reduce of " + what);
          }
      group.barrier();
    });
    FakeGpus::expect_correct();
    FakeGpus::expect_nothing_left();
  }
}

void trained_models_have_the_bits_of_host_memory(void**) {
  for (const Placement& placement : {kPairs, kUnequal, kByTurns}) {
    const FakeGpus gpus(3);
    run_on_hosts(placement, [&](group::Group& group, int) {
      for (unsigned bits = 0; bits < 16; ++bits) {
        if (placement.size() > 4 && bits % 3 != 0) continue;
        for (const ddp_dtype dtype : {DDP_F32, DDP_BF16}) {
          Way way{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, false, {}, (bits & 12) == 12};
          if (dtype == DDP_F32 && bits == 9) way.wire = DDP_F16;
          way.voids = bits == 2;
          expect_equal_training(trained(group, dtype, way, true), trained(group, dtype, way, false),
                                std::string(dtype_name(dtype)) + ", way " + std::to_string(bits) + ", " + placement.name);
        }
      }
      group.barrier();
    });
    FakeGpus::expect_correct();
    FakeGpus::expect_nothing_left();
  }
}

/// Hosts are whole nodes: leaves that are nobody's.
void ranks_by_host_cross_as_one_node(void**) {
  constexpr int64_t kCount = 40'000;
  const LeafMap map = LeafMap::by_host(kUnequal.host_of);
  std::vector<GroupBytes> inputs;
  for (uint64_t rank = 0; rank < 8; ++rank) inputs.push_back(random_numbers(DDP_BF16, kCount, rank));
  std::vector<cpu::SumPart> parts;
  for (int64_t at = 0; at < map.total(); ++at)
    if (map.rank_at(at) >= 0)
      parts.push_back(cpu::SumPart{at, at + 1, inputs[static_cast<size_t>(map.rank_at(at))].data(), true, 1});
  GroupBytes wanted(inputs[0].size());
  void* const to = wanted.data();
  cpu::combine(cpu::ReduceRule{DDP_BF16, DDP_AVERAGE, 8}, parts.data(), 8, map.total(), &to, 1, kCount);
  const FakeGpus gpus;
  fake_gpu::set_hosts(kUnequal.host_of);
  run_reproducible(8, [&](group::Group& group, int rank) {
    bootstrap::Failure failure;
    const collective::TransportContext context{&group.control(), &failure, with_reproducible(1)};
    nccl::GivenMemory memory(group.gpu().device());
    nccl::NcclTransport transport(context, group.gpu().device(), memory, {map, kUnequal.hosts()},
                                  os::Deadline::in_ms(20'000));
    const GpuStream stream(rank);
    GpuArray all(rank, kCount * 2);
    all.poke(inputs[static_cast<size_t>(rank)]);
    transport.all_reduce(all.tensor(group, DDP_BF16), DDP_AVERAGE, stream.get());
    stream.synchronize();
    expect(all.peek<std::byte>() == wanted, "the sum by hosts");
    group.barrier();
    transport.close(true);
  });
  FakeGpus::expect_correct();
}

/// Bytes of one sum to slices that a host sends to others, in slices of F32 or of 16 bits.
void a_host_sends_its_nodes(void**) {
  constexpr int64_t kSlice = 1024;
  struct Case {
    const Placement& placement;
    ddp_dtype dtype;
    int32_t host;
    int64_t bytes;  // of an element of each slice that it sends
  };
  for (const auto& [placement, dtype, host, bytes] :
       {Case{kPairs, DDP_F32, 0, 4}, Case{kPairs, DDP_F32, 1, 4}, Case{kPairs, DDP_BF16, 0, 4}, Case{kFours, DDP_F32, 0, 4},
        Case{kFours, DDP_BF16, 1, 4}, Case{kUnequal, DDP_F32, 0, 8}, Case{kUnequal, DDP_F32, 1, 8},
        Case{kUnequal, DDP_BF16, 0, 6}, Case{kUnequal, DDP_BF16, 1, 6}, Case{kByTurns, DDP_F32, 0, 12}}) {
    const FakeGpus gpus;
    run_on_hosts(
        placement, [&, &placement = placement, dtype = dtype, host = host, bytes = bytes](group::Group& group, int rank) {
          const GpuStream stream(rank);
          const GroupBytes input = random_numbers(dtype, kSlice * placement.size(), static_cast<uint64_t>(rank));
          GpuArray all(rank, static_cast<int64_t>(input.size()));
          all.poke(input);
          GroupBytes whole = input;
          group.all_reduce(flat_tensor(whole.data(), dtype, kSlice * placement.size()), DDP_SUM);
          group.barrier();
          if (rank == 0) fake_gpu::set_hosts(placement.host_of);
          group.barrier();
          group.all_reduce(all.tensor(group, dtype), DDP_SUM, stream.get());
          stream.synchronize();
          expect(all.peek<std::byte>() == whole, "the sum of " + placement.name);
          group.barrier();
          const auto others = static_cast<int64_t>(placement.hosts()[static_cast<size_t>(1 - host)].size());
          expect_equal(fake_gpu::bytes_to_other_hosts(host), others * kSlice * bytes,
                       placement.name + ", " + dtype_name(dtype) + ": bytes that host " + std::to_string(host) + " sends");
          group.barrier();
        });
    FakeGpus::expect_correct();
  }
}

/// After the first steps nothing is allocated any more, also with weights.
void passes_allocate_nothing(void**) {
  const FakeGpus gpus;
  run_on_hosts(kPairs, [&](group::Group& group, int rank) {
    Way way;
    way.weights = true;
    Trainee trainee(group, DDP_F32, way, true);
    trainee.train();
    group.barrier();
    const int64_t before = fake_gpu::allocations();
    group.barrier();
    trainee.train();
    group.barrier();
    expect_equal(fake_gpu::allocations(), before, "allocations of rank " + std::to_string(rank));
    group.barrier();
  });
  FakeGpus::expect_correct();
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {
      ddp_test(collectives_have_the_bits_of_host_memory),
      ddp_test(trained_models_have_the_bits_of_host_memory),
      ddp_test(ranks_by_host_cross_as_one_node),
      ddp_test(a_host_sends_its_nodes),
      ddp_test(passes_allocate_nothing),
  };
  return cmocka_run_group_tests_name("gpu_reproducible_hosts", tests, nullptr, nullptr);
}
