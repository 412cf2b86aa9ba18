// A pass that is captured into a graph of the GPU and launched again: the graph holds what the pass enqueued, and the hosts
// have spoken once.
#include "collective/nccl/nccl_transport.hpp"
#include "model/model.hpp"
#include "optim/rules.hpp"
#include "optim/sgd.hpp"
#include "support/gpu_world.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {
namespace {

constexpr int64_t kCount = 3000;

void a_captured_pass_can_be_launched_again(void**) {
  for (const bool owned : {false, true}) {
    const FakeGpus gpus;
    run_gpu_groups(2, [&](group::Group& group, int rank) {
      const GpuStream stream(rank);
      GpuArray value(rank, kCount * 4), grad(rank, kCount * 4), fresh(rank, kCount * 4);
      value.poke(std::vector<float>(kCount, 0));
      model::Model model(std::shared_ptr<group::Group>(&group, [](group::Group*) {}), [] {
        ddp_model_options options{};
        options.first_bucket_bytes = options.bucket_bytes = 1 << 20;
        return options;
      }());
      const Tensor lent = grad.tensor(group, DDP_F32);
      model.add_parameter("w", value.tensor(group, DDP_F32), owned ? nullptr : &lent);
      model.commit(stream.get());
      void* const where = model.table().parameter(0).grad.data;
      const auto pass = [&] {
        model.begin_backward(DDP_PASS_REDUCE);
        write_on(stream.get(), fresh, where);
        model.pass().mark_ready(0, stream.get());
        model.end_backward(stream.get());
      };
      fresh.poke(std::vector<float>(kCount, 1));
      pass();
      stream.synchronize();
      group.barrier();
      expect(fake_gpu::begin_capture(stream.get(), fake_gpu::CaptureMode::kThreadLocal), "the capture begins");
      pass();
      SgdOptions options;
      options.rate = 1;
      optim::Sgd sgd(std::shared_ptr<model::Model>(&model, [](model::Model*) {}), options, options);
      float wanted = 0;
      std::string why;
      const fake_gpu::GraphPtr graph = fake_gpu::end_capture(stream.get(), &why);
      expect(graph != nullptr, "the capture ends well: " + why);
      for (int replay = 1; replay <= 3; ++replay) {
        fresh.poke(std::vector<float>(kCount, static_cast<float>((rank + 1) * replay)));
        fake_gpu::launch_graph(graph, stream.get());
        const std::vector<float> got = read_on(stream, rank, where, kCount);
        for (const float each : got) expect_equal(each, 1.5F * static_cast<float>(replay), "the mean of the replay");
        sgd.step(stream.get());  // a launch makes new gradients, of which the model hears nothing
        wanted -= 1.5F * static_cast<float>(replay);
        for (const float each : read_on(stream, rank, value.data(), kCount)) expect_equal(each, wanted, "the step");
      }
      group.barrier();
    });
    FakeGpus::expect_correct(owned ? "in place" : "copied");
    FakeGpus::expect_nothing_left();
  }
}

}  // namespace
}  // namespace ddp::test

int main() {
  using namespace ddp::test;
  const CMUnitTest tests[] = {ddp_test(a_captured_pass_can_be_launched_again)};
  return cmocka_run_group_tests_name("gpu_capture", tests, nullptr, nullptr);
}
