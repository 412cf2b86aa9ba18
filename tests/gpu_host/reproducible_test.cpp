// The group option `reproducible`: what ranks sum on their GPUs has the bits of what they sum in host memory, whatever the
// numbers are. NCCL of the fake adds in another order than the CPU, so without the option the bits are others.
#include <cstring>
#include <optional>

#include "bootstrap/failure.hpp"
#include "collective/nccl/nccl_transport.hpp"
#include "model/join.hpp"
#include "model/uneven.hpp"
#include "optim/adam.hpp"
#include "support/gpu_world.hpp"
#include "support/rule_options.hpp"
#include "unit/optim/oracle.hpp"

namespace ddp::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr ddp_dtype kFloats[] = {DDP_F32, DDP_F16, DDP_BF16};

/// Numbers of many sizes, so that every order of adding them has bits of its own.
Bytes random_numbers(ddp_dtype dtype, int64_t count, uint64_t seed) {
  Bytes bytes(static_cast<size_t>(count * dtype_size(dtype)));
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < count; ++i) {
    const double number = static_cast<double>(static_cast<int64_t>(random() >> 11)) * 0x1p-52 - 1;
    const double scaled = std::ldexp(number, static_cast<int>(random() % 8));
    if (is_floating(dtype))
      set_element(dtype, bytes.data(), static_cast<size_t>(i), scaled);
    else
      for (int64_t b = 0; b < dtype_size(dtype); ++b)
        bytes[static_cast<size_t>(i * dtype_size(dtype) + b)] = static_cast<std::byte>(random() >> 56);
  }
  return bytes;
}

ddp_group_options with_reproducible(int32_t value) {
  ddp_group_options options = world_options();
  options.reproducible = value;
  return options;
}

void run_reproducible(int size, const std::function<void(group::Group&, int)>& body) {
  run_gpu_groups_with(size, with_reproducible(1), body);
}

void collectives_have_the_bits_of_host_memory(void**) {
  for (const int size : {1, 2, 3, 5}) {
    const FakeGpus gpus(5);
    run_reproducible(size, [&](group::Group& group, int rank) {
      const GpuStream stream(rank);
      for (const ddp_dtype dtype : {DDP_F32, DDP_F64, DDP_F16, DDP_BF16, DDP_I32, DDP_I64, DDP_U8})
        for (const ddp_reduce op : {DDP_SUM, DDP_AVERAGE, DDP_MIN, DDP_MAX})
          for (const int64_t each : {7, 1024, 1500}) {
            const int64_t count = each * size;
            const Bytes input = random_numbers(dtype, count, static_cast<uint64_t>(rank * 1000 + count));
            Bytes whole = input, source = input, own(input.size() / static_cast<size_t>(size));
            group.all_reduce(flat_tensor(whole.data(), dtype, count), op);
            group.reduce_scatter(flat_tensor(source.data(), dtype, count), flat_tensor(own.data(), dtype, each), op);
            GpuArray all(rank, static_cast<int64_t>(input.size())), part(rank, static_cast<int64_t>(own.size()));
            all.poke(input);
            group.reduce_scatter(all.tensor(group, dtype), part.tensor(group, dtype), op, stream.get());
            stream.synchronize();
            const std::string what = std::to_string(count) + " " + dtype_name(dtype) + ", op " + std::to_string(op) + ", " +
                                     std::to_string(size) + " ranks";
            expect(part.peek<std::byte>() == own, "reduce-scatter of " + what);
            expect(all.peek<std::byte>() == input, "its input stays: " + what);
            group.reduce_scatter(all.tensor(group, dtype), flat_part(all.tensor(group, dtype), rank * each, each), op,
                                 stream.get());
            stream.synchronize();
            const Bytes after = all.peek<std::byte>();
            expect(std::equal(own.begin(), own.end(), after.begin() + static_cast<std::ptrdiff_t>(own.size()) * rank),
                   "in place: " + what);
            all.poke(input);
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

/// More than the memory for blocking collectives holds at once.
void a_large_tensor_is_summed_in_parts(void**) {
  constexpr int64_t kEach = (int64_t{3} << 20) + 5;
  const FakeGpus gpus;
  run_reproducible(3, [&](group::Group& group, int rank) {
    const GpuStream stream(rank);
    Bytes whole = random_numbers(DDP_F32, 3 * kEach, static_cast<uint64_t>(rank)), own(kEach * 4);
    GpuArray all(rank, static_cast<int64_t>(whole.size())), part(rank, kEach * 4);
    all.poke(whole);
    group.reduce_scatter(all.tensor(group, DDP_F32), part.tensor(group, DDP_F32), DDP_AVERAGE, stream.get());
    group.all_reduce(all.tensor(group, DDP_F32), DDP_AVERAGE, stream.get());
    stream.synchronize();
    group.reduce_scatter(flat_tensor(whole.data(), DDP_F32, 3 * kEach), flat_tensor(own.data(), DDP_F32, kEach),
                         DDP_AVERAGE);
    group.all_reduce(flat_tensor(whole.data(), DDP_F32, 3 * kEach), DDP_AVERAGE);
    expect(all.peek<std::byte>() == whole, "all-reduce");
    expect(part.peek<std::byte>() == own, "reduce-scatter");
    group.barrier();
  });
  FakeGpus::expect_correct();
}

struct Way {
  bool shard = false, in_backward = false, weights = false, owned = true, unused = false;
  ddp_dtype wire{};
  bool skips = false;  // the last rank, the second pass
  bool voids = false;  // the second pass
  bool joins = false;  // the last rank, after one pass
};

/// What training leaves: parameters, gradients (not of a sharded step), state of the optimizer.
struct Trained {
  std::vector<Bytes> values, grads, state;
  bool operator==(const Trained&) const = default;
};

/// One rank's model, in host memory or on its GPU.
class Trainee {
 public:
  Trainee(group::Group& group, ddp_dtype dtype, const Way& way, bool on_gpu)
      : group_(group), dtype_(dtype), way_(way), on_gpu_(on_gpu) {
    if (on_gpu) stream_.emplace(group.rank());
    ddp_model_options options{};
    options.first_bucket_bytes = 1'000;
    options.bucket_bytes = 30'000;
    options.wire = way.wire;
    if (way.weights) options.divisor = DDP_DIVISOR_WEIGHTS;
    if (way.unused) options.unused = DDP_UNUSED_ALLOW;
    options.uneven_inputs = way.joins ? 1 : 0;
    model_ = std::make_shared<model::Model>(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), options);
    here_.reserve(2 * kCounts.size());
    there_.reserve(2 * kCounts.size());
    for (size_t p = 0; p < kCounts.size(); ++p) {
      const Tensor value = lend(random_numbers(dtype, kCounts[p], 99 + p));
      const Tensor grad = lend(Bytes(static_cast<size_t>(kCounts[p] * dtype_size(dtype))));
      model_->add_parameter("p" + std::to_string(p), value, way.owned ? nullptr : &grad);
    }
    AdamOptions adam;
    adam.rate = 1.0 / 64;
    adam.shard = way.shard;
    adam.in_backward = way.in_backward;
    optimizer_ = std::make_shared<optim::Adam>(model_, adam, adam);
    if (optimizer_->in_passes() != nullptr) model_->optimizer_slot().attach(optimizer_);
    model_->commit(order());
    if (way.weights) set_weight(*model_, 1 + 0.37 * group.rank());
  }
  ~Trainee() { model_->close(); }

  void train() {
    const bool last = group_.size() > 1 && group_.rank() == group_.size() - 1;
    for (int pass = 0; pass < 3 && !(way_.joins && last && pass > 0); ++pass) {
      if (way_.voids && pass == 1) {
        void_pass();
        continue;
      }
      if (way_.skips && pass == 1 && last)
        skip_backward(*model_, order());
      else
        backward(pass);
      optimizer_->step(order());
    }
    if (way_.joins) join(*model_, order());
  }
  [[nodiscard]] Trained result() {
    Trained all;
    for (int32_t p = 0; p < model_->table().parameter_count(); ++p) {
      all.values.push_back(read(model_->table().parameter(p).value));
      if (!way_.shard) all.grads.push_back(read(model_->table().parameter(p).grad));
    }
    for (const model::StateTensor& each : optimizer_->state_tensors()) all.state.push_back(whole(each));
    return all;
  }
  [[nodiscard]] std::string plan() const { return model_->pass().describe_plan(); }

 private:
  static inline const std::vector<int64_t> kCounts = {300, 5000, 7, 9001, 64};

  [[nodiscard]] void* order() const { return on_gpu_ ? stream_->get() : nullptr; }
  Tensor lend(const Bytes& numbers) {
    here_.push_back(numbers);
    const auto count = static_cast<int64_t>(numbers.size()) / dtype_size(dtype_);
    if (!on_gpu_) return flat_tensor(here_.back().data(), dtype_, count);
    there_.emplace_back(group_.rank(), static_cast<int64_t>(numbers.size())).poke(numbers);
    return there_.back().tensor(group_, dtype_);
  }
  void backward(int pass) {
    model_->begin_backward(DDP_PASS_REDUCE);
    for (size_t p = 0; p < kCounts.size(); ++p) {
      const auto index = static_cast<int32_t>(p);
      const bool used = !way_.unused || (p != 3 && (p != 1 || group_.rank() == 0));  // 3: by nobody
      write(model_->table().parameter(index).grad,
            used ? random_numbers(dtype_, kCounts[p], static_cast<uint64_t>(1000 * pass + 10 * group_.rank()) + p)
                 : Bytes(static_cast<size_t>(kCounts[p] * dtype_size(dtype_))));
      if (used) model_->pass().mark_ready(index, order());
    }
    model_->end_backward(order());
  }
  /// The first rank gives up before its last gradient.
  void void_pass() {
    model_->begin_backward(DDP_PASS_REDUCE);
    for (int32_t p = model_->table().parameter_count(); p-- > 0;) {
      const Tensor& grad = model_->table().parameter(p).grad;
      write(grad, random_numbers(dtype_, grad.count, static_cast<uint64_t>(77 + p)));
      if (group_.rank() > 0 || p > 0) model_->pass().mark_ready(p, order());
    }
    if (group_.rank() == 0)
      abandon_backward(*model_, "a test", order());
    else
      static_cast<void>(expect_error(DDP_ERROR_INVALID_STATE, [&] { model_->end_backward(order()); }));
  }
  void write(const Tensor& to, const Bytes& bytes) {
    if (on_gpu_) stream_->synchronize();
    if (on_gpu_) expect(fake_gpu::poke(to.data, bytes.data(), to.bytes()), "poked");
    if (!on_gpu_) std::memcpy(to.data, bytes.data(), bytes.size());
  }
  [[nodiscard]] Bytes read(const Tensor& tensor) {
    Bytes bytes(static_cast<size_t>(tensor.bytes()));
    if (bytes.empty()) return bytes;
    if (!tensor.is_on_gpu()) {
      std::memcpy(bytes.data(), tensor.data, bytes.size());
    } else {
      stream_->synchronize();
      expect(fake_gpu::peek(bytes.data(), tensor.data, tensor.bytes()), "peeked");
    }
    return bytes;
  }

  /// Of all ranks, where each holds a part.
  [[nodiscard]] Bytes whole(const model::StateTensor& state) {
    if (state.parts.empty()) return read(state.tensor);
    const int64_t size = dtype_size(state.tensor.dtype);
    const Bytes own = read(flat_part(state.tensor, 0, count_of(state.parts[static_cast<size_t>(group_.rank())])));
    const auto parts = group_.gather("state", std::string_view(reinterpret_cast<const char*>(own.data()), own.size()));
    Bytes all(static_cast<size_t>(state.tensor.bytes()));
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      const char* from = parts[rank].data();
      for (const OwnedSpan& span : state.parts[rank]) {
        std::memcpy(all.data() + span.first * size, from, static_cast<size_t>(span.count * size));
        from += span.count * size;
      }
    }
    return all;
  }

  group::Group& group_;
  const ddp_dtype dtype_;
  const Way way_;
  const bool on_gpu_;
  std::optional<GpuStream> stream_;
  std::vector<GpuArray> there_;
  std::vector<Bytes> here_;
  std::shared_ptr<model::Model> model_;
  std::shared_ptr<optim::Adam> optimizer_;
};

Trained trained(group::Group& group, ddp_dtype dtype, const Way& way, bool on_gpu) {
  Trainee trainee(group, dtype, way, on_gpu);
  trainee.train();
  return trainee.result();
}

void expect_equal_training(const Trained& got, const Trained& wanted, const std::string& what) {
  expect(got.values == wanted.values, what + ": parameters");
  expect(got.grads == wanted.grads, what + ": gradients");
  expect(got.state == wanted.state, what + ": state of the optimizer");
}

std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (unsigned bits = 0; bits < 64; ++bits) {
    const Way way{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0, {},
                  (bits & 32) != 0};
    ways.push_back(way);
  }
  return ways;
}

void trained_models_have_the_bits_of_host_memory(void**) {
  for (const int size : {1, 2, 3, 4, 5}) {
    const FakeGpus gpus(static_cast<uint64_t>(size));
    run_reproducible(size, [&](group::Group& group, int rank) {
      const std::vector<Way> ways = all_ways();
      for (size_t w = 0; w < ways.size(); ++w) {
        const ddp_dtype dtype = kFloats[(w / 4 + w + static_cast<size_t>(size)) % 3];
        if (size != 3 && w % 5 != 0) continue;
        expect_equal_training(trained(group, dtype, ways[w], true), trained(group, dtype, ways[w], false),
                              std::string(dtype_name(dtype)) + ", way " + std::to_string(w) + ", " + std::to_string(size) +
                                  " ranks, rank " + std::to_string(rank));
      }
      group.barrier();
    });
    FakeGpus::expect_correct();
    FakeGpus::expect_nothing_left();
  }
}

void terms_of_16_bits_have_the_bits_of_host_memory(void**) {
  for (const int size : {2, 3, 5}) {
    const FakeGpus gpus(7);
    run_reproducible(size, [&](group::Group& group, int) {
      for (const ddp_dtype dtype : {DDP_F32, DDP_F64})
        for (const ddp_dtype wire : {DDP_F16, DDP_BF16})
          for (unsigned bits = 0; bits < 8; ++bits) {
            const Way way{(bits & 1) != 0, false, (bits & 2) != 0, true, false, wire, (bits & 4) != 0};
            expect_equal_training(trained(group, dtype, way, true), trained(group, dtype, way, false),
                                  std::string(dtype_name(dtype)) + " as " + dtype_name(wire) + ", way " +
                                      std::to_string(bits) + ", " + std::to_string(size) + " ranks");
          }
      group.barrier();
    });
    FakeGpus::expect_correct();
    FakeGpus::expect_nothing_left();
  }
}

void void_passes_and_ranks_out_of_data_do_as_in_host_memory(void**) {
  const FakeGpus gpus(3);
  run_reproducible(3, [&](group::Group& group, int) {
    for (const bool weights : {false, true})
      for (const bool joins : {false, true}) {
        Way way;
        way.weights = weights;
        way.voids = !joins;
        way.joins = joins;
        expect_equal_training(trained(group, DDP_F32, way, true), trained(group, DDP_F32, way, false),
                              std::string(joins ? "joins" : "void") + (weights ? ", weights" : ""));
      }
    group.barrier();
  });
  FakeGpus::expect_correct();
  FakeGpus::expect_nothing_left();
}

/// Hosts that have their ranks by turns: leaves that are nobody's.
void ranks_by_host_are_added_host_by_host(void**) {
  constexpr int64_t kCount = 40'000;
  const std::vector<int32_t> host_of{0, 1, 0, 1, 1};
  const LeafMap map = LeafMap::by_host(host_of);
  std::vector<Bytes> inputs;
  for (uint64_t rank = 0; rank < host_of.size(); ++rank) inputs.push_back(random_numbers(DDP_F32, kCount, rank));
  std::vector<cpu::SumPart> parts;
  for (int64_t at = 0; at < map.total(); ++at)
    if (map.rank_at(at) >= 0)
      parts.push_back(cpu::SumPart{at, at + 1, inputs[static_cast<size_t>(map.rank_at(at))].data(), true, 1});
  expect(static_cast<int64_t>(parts.size()) < map.total(), "there are holes");
  Bytes wanted(inputs[0].size());
  void* const to = wanted.data();
  cpu::combine(cpu::ReduceRule{DDP_F32, DDP_AVERAGE, 5}, parts.data(), 5, map.total(), &to, 1, kCount);
  const FakeGpus gpus;
  run_reproducible(5, [&](group::Group& group, int rank) {
    bootstrap::Failure failure;
    const collective::TransportContext context{&group.control(), &failure, with_reproducible(1)};
    nccl::NcclTransport transport(context, group.gpu().device(), map, os::Deadline::in_ms(20'000));
    const GpuStream stream(rank);
    GpuArray all(rank, kCount * 4);
    all.poke(inputs[static_cast<size_t>(rank)]);
    transport.all_reduce(all.tensor(group, DDP_F32), DDP_AVERAGE, stream.get());
    stream.synchronize();
    expect(all.peek<std::byte>() == wanted, "the sum by hosts");
    group.barrier();
    transport.close(true);
  });
  FakeGpus::expect_correct();
}

void without_the_option_the_bits_are_nccls(void**) {
  const FakeGpus gpus;
  run_gpu_groups_with(3, with_reproducible(0), [&](group::Group& group, int rank) {
    expect(trained(group, DDP_F32, Way{}, true).values != trained(group, DDP_F32, Way{}, false).values, "a model");
    const GpuStream stream(rank);
    Bytes whole = random_numbers(DDP_F32, 1000, static_cast<uint64_t>(rank));
    GpuArray all(rank, static_cast<int64_t>(whole.size()));
    all.poke(whole);
    group.all_reduce(all.tensor(group, DDP_F32), DDP_SUM, stream.get());
    group.all_reduce(flat_tensor(whole.data(), DDP_F32, 1000), DDP_SUM);
    stream.synchronize();
    expect(all.peek<std::byte>() != whole, "an all-reduce");
    group.barrier();
  });
  FakeGpus::expect_correct();
}

/// After the first steps nothing is allocated any more.
void passes_allocate_nothing(void**) {
  const FakeGpus gpus;
  run_reproducible(3, [&](group::Group& group, int rank) {
    Way way;
    way.weights = true;
    Trainee trainee(group, DDP_F32, way, true);
    expect_contains(trainee.plan(), "NCCL, reproducible");
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

void ranks_that_differ_are_told(void**) {
  const FakeGpus gpus;
  static std::atomic<int> next{0};
  const std::string place = "local://reproducible-" + std::to_string(next++);
  run_ranks(2, [&](int rank) {
    ddp_group_options mine = with_reproducible(rank);
    mine.rank = rank;
    mine.world_size = 2;
    const std::string said = expect_error(DDP_ERROR_MISMATCH, [&] { (void)group::Group::create(place.c_str(), mine); });
    expect_contains(said, "reproducible 0");
    expect_contains(said, "reproducible 1");
  });
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {ddp_test(collectives_have_the_bits_of_host_memory),
                              ddp_test(a_large_tensor_is_summed_in_parts),
                              ddp_test(trained_models_have_the_bits_of_host_memory),
                              ddp_test(terms_of_16_bits_have_the_bits_of_host_memory),
                              ddp_test(void_passes_and_ranks_out_of_data_do_as_in_host_memory),
                              ddp_test(ranks_by_host_are_added_host_by_host),
                              ddp_test(without_the_option_the_bits_are_nccls),
                              ddp_test(passes_allocate_nothing),
                              ddp_test(ranks_that_differ_are_told)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
