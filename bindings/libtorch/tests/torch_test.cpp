// SPDX-License-Identifier: Apache-2.0
// <ddp/torch.hpp>: what DistributedDataParallel does with gradients, buffers, unused parameters, failures and checkpoints.
// Ranks are threads.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ddp/torch.hpp>
#include <filesystem>
#include <thread>

namespace {

void require(bool holds, const char* what, int line) {
  if (!holds) throw std::logic_error("line " + std::to_string(line) + ": " + what);
}
#define REQUIRE(condition) require((condition), #condition, __LINE__)

template <class Work>
void on_ranks(const char* name, Work work) {
  std::exception_ptr problems[2];
  std::thread threads[2];
  for (int rank = 0; rank < 2; ++rank) {
    threads[rank] = std::thread([&, rank] {
      try {
        ddp::GroupOptions options;
        options.rank = rank, options.world_size = 2, options.timeout_ms = 30000;
        ddp::Group group(std::string("local://torch_") + name, options);
        work(group);
      } catch (...) {
        problems[rank] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& problem : problems) {
    if (problem) std::rethrow_exception(problem);
  }
}

template <class Call>
std::string error_of(Call call, ddp_status wanted) {
  try {
    call();
  } catch (const ddp::Error& error) {
    if (error.status() != wanted) throw std::logic_error(std::string(error.status_name()) + ": " + error.what());
    return error.what();
  }
  throw std::logic_error("no ddp::Error was thrown");
}

/** Values that depend on nothing but the number. */
torch::Tensor values(std::vector<std::int64_t> shape, int number) {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  return torch::sin(torch::arange(count, torch::kFloat) * (number + 1) + number).view(shape);
}

struct NetImpl : torch::nn::Module {
  NetImpl() : first(3, 4), last(4, 2), unused(2, 2) {
    register_module("first", first), register_module("last", last), register_module("unused", unused);
    seen = register_buffer("seen", torch::zeros({1}));
    flag = register_buffer("flag", torch::ones({3}, torch::kBool));
    const torch::NoGradGuard no_grad;
    int number = 0;
    for (auto& parameter : parameters()) parameter.copy_(values(parameter.sizes().vec(), ++number));
  }
  torch::Tensor forward(torch::Tensor x, bool all = true) {
    x = last(torch::relu(first(x)));
    return all ? unused(x) : x;
  }
  torch::nn::Linear first, last, unused;
  torch::Tensor seen, flag;
};
TORCH_MODULE(Net);

torch::Tensor loss_of(torch::Tensor output) { return output.pow(2).mean(); }
ddp::torch::Options small_buckets(bool unused = false) {
  ddp::torch::Options options;
  options.model.first_bucket_bytes = options.model.bucket_bytes = 32;
  options.find_unused_parameters = unused;
  return options;
}
/** The mean over both ranks' inputs, without libddp. */
std::vector<torch::Tensor> expected(int step, bool all = true) {
  Net alone;
  for (int rank = 0; rank < 2; ++rank) (loss_of(alone(values({5, 3}, 2 * step + rank), all)) / 2).backward();
  std::vector<torch::Tensor> grads;
  for (const auto& parameter : alone->parameters()) grads.push_back(parameter.grad());
  return grads;
}
bool close(const torch::Tensor& a, const torch::Tensor& b) { return torch::allclose(a, b, 1e-5, 1e-6); }

void gradients_are_the_mean_and_lie_in_the_buckets() {
  on_ranks("mean", [](ddp::Group& group) {
    Net module;
    if (group.rank() == 1) {
      const torch::NoGradGuard no_grad;
      module->first->weight.zero_(); /* rank 0's values go to everybody */
    }
    ddp::torch::DistributedDataParallel net(group, module, small_buckets());
    REQUIRE(net.model().stats().buckets > 1);
    for (int step = 0; step < 3; ++step) {
      if (step < 2) module->zero_grad(step == 0);
      if (step == 2) {
        for (auto& parameter : module->parameters()) parameter.grad().zero_(); /* autograd adds in the bucket */
      }
      loss_of(net(values({5, 3}, 2 * step + group.rank()))).backward();
      const auto wanted = expected(step);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        REQUIRE(close(module->parameters()[i].grad(), wanted[i]));
        REQUIRE(module->parameters()[i].grad().data_ptr() == net.model().grad(static_cast<int>(i)).data);
      }
    }
    net.model().check_replicas();
  });
}

void no_sync_accumulates() {
  on_ranks("no_sync", [](ddp::Group& group) {
    Net module;
    ddp::torch::DistributedDataParallel net(group, module, small_buckets());
    {
      const auto alone = net.no_sync();
      loss_of(net(values({5, 3}, group.rank()))).backward();
    }
    loss_of(net(values({5, 3}, 2 + group.rank()))).backward();
    const auto first = expected(0), second = expected(1);
    for (std::size_t i = 0; i < first.size(); ++i) REQUIRE(close(module->parameters()[i].grad(), first[i] + second[i]));
    REQUIRE(net.model().stats().passes == 1);
  });
}

void unused_parameters_are_named_or_allowed() {
  on_ranks("unused", [](ddp::Group& group) {
    Net module;
    {
      ddp::torch::DistributedDataParallel net(group, module, small_buckets());
      const auto text = error_of([&] { loss_of(net(values({5, 3}, 0), false)).backward(); }, DDP_ERROR_INVALID_STATE);
      REQUIRE(text.find("unused.weight") != std::string::npos);
    }
    module->zero_grad();
    ddp::torch::DistributedDataParallel net(group, module, small_buckets(true));
    loss_of(net(values({5, 3}, group.rank()), false)).backward();
    const auto wanted = expected(0, false);
    for (std::size_t i = 0; i < 4; ++i) REQUIRE(close(module->parameters()[i].grad(), wanted[i]));
    REQUIRE(!module->unused->weight.grad().defined()); /* nobody used it */
    loss_of(net(values({5, 3}, group.rank()), group.rank() == 1)).backward();
    REQUIRE(module->unused->weight.grad().defined() && net.model().was_used(5)); /* the other rank did */
    net.model().check_replicas();
  });
}

struct Fails : torch::autograd::Function<Fails> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x, bool fails) {
    context->saved_data["fails"] = fails;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    if (context->saved_data["fails"].toBool()) throw std::runtime_error("out of luck");
    return {grads[0], torch::Tensor()};
  }
};

struct FailingImpl : torch::nn::Module {
  FailingImpl() : first(3, 2), last(2, 2) { register_module("first", first), register_module("last", last); }
  torch::Tensor forward(torch::Tensor x, bool fails) { return last(Fails::apply(first(x), fails)); }
  torch::nn::Linear first, last;
};
TORCH_MODULE(Failing);

void expect_out_of_luck(const torch::Tensor& loss) {
  std::string text;
  try {
    loss.backward();
  } catch (const std::runtime_error& error) {
    text = error.what();
  }
  REQUIRE(text.find("out of luck") != std::string::npos);
}

struct Layered : torch::nn::Module {
  explicit Layered(torch::nn::Linear given, bool twice = false) : layer(given), is_twice(twice) {
    register_module("first", layer);
    if (twice) register_module("second", layer);
  }
  torch::Tensor forward(torch::Tensor x) { return is_twice ? layer(torch::relu(layer(x))) : layer(x); }
  torch::nn::Linear layer;
  bool is_twice;
};

void an_exception_in_backward_reaches_the_other_ranks() {
  on_ranks("exception", [](ddp::Group& group) {
    Failing module;
    ddp::torch::DistributedDataParallel net(group, module);
    const auto loss = loss_of(net(values({5, 3}, 0), group.rank() == 1));
    if (group.rank() == 1) {
      expect_out_of_luck(loss);
    } else {
      const auto text = error_of([&] { loss.backward(); }, DDP_ERROR_INVALID_STATE);
      REQUIRE(text.find("rank 1") != std::string::npos &&
              text.find("an exception ended its backward pass") != std::string::npos);
    }
    module->zero_grad();
    loss_of(net(values({5, 3}, group.rank()), false)).backward(); /* leaves the open pass, and goes on */
    REQUIRE(module->last->weight.grad().defined());
    net.model().check_replicas();
  });
}

void an_exception_before_the_first_gradient_reaches_them_too() {
  on_ranks("first", [](ddp::Group& group) {
    Net module; /* whose buffers forward() sends */
    ddp::torch::DistributedDataParallel net(group, module);
    for (int step = 0; step < 3; ++step) {
      module->zero_grad();
      auto output = net(values({5, 3}, step));
      if (step == 1 && group.rank() == 1) {
        output.register_hook([](const torch::Tensor&) { throw std::runtime_error("out of luck"); });
        expect_out_of_luck(loss_of(output));
      } else if (step == 1) {
        REQUIRE(error_of([&] { loss_of(output).backward(); }, DDP_ERROR_INVALID_STATE).find("rank 1") != std::string::npos);
      } else {
        loss_of(output).backward();
      }
    }
    net.model().check_replicas();
  });
}

void a_layer_of_two_wrapped_modules_is_averaged_by_the_one_that_is_used() {
  on_ranks("shared", [](ddp::Group& group) {
    torch::nn::Linear layer(torch::nn::LinearOptions(256, 256).bias(false));
    auto actor = std::make_shared<Layered>(layer), critic = std::make_shared<Layered>(layer);
    ddp::torch::DistributedDataParallel first(group, actor), second(group, critic);
    for (int step = 0; step < 4; ++step) {
      actor->zero_grad();
      const auto data = torch::full({1, 256}, 1.0F + static_cast<float>(group.rank()));
      (step % 2 == 0 ? second(data) : first(data)).sum().backward();
      REQUIRE(layer->weight.grad().eq(1.5F).all().item<bool>());
    }
    actor->zero_grad();
    actor->forward(torch::ones({1, 256})).sum().backward(); /* through no wrapper */
    REQUIRE(layer->weight.grad().eq(1).all().item<bool>());
  });
}

void a_parameter_may_be_used_beside_the_outputs() {
  on_ranks("beside", [](ddp::Group& group) {
    Net module;
    ddp::torch::DistributedDataParallel net(group, module, small_buckets());
    for (int step = 0; step < 2; ++step) {
      module->zero_grad();
      const auto loss = loss_of(net(values({5, 3}, step), false)); /* `unused` is not in it */
      (loss + (1 + 2 * group.rank()) * (module->unused->weight.sum() + module->unused->bias.sum())).backward();
      REQUIRE(module->unused->weight.grad().eq(2.0F).all().item<bool>());
    }
  });
}

void modules_may_be_on_the_stack_and_have_a_layer_twice() {
  on_ranks("stack", [](ddp::Group& group) {
    Layered module(torch::nn::Linear(3, 3), true);
    ddp::torch::DistributedDataParallel net(group, module, small_buckets());
    REQUIRE(net.model().parameter_count() == 2 && net.module().get() == &module);
    const auto of = [&](int rank) {
      Layered alone(torch::nn::Linear(3, 3), true);
      alone.layer->weight.set_data(module.layer->weight.detach()), alone.layer->bias.set_data(module.layer->bias.detach());
      loss_of(alone.forward(values({4, 3}, 1 + rank))).backward();
      return alone.layer->weight.grad().clone();
    };
    loss_of(net(values({4, 3}, 1 + group.rank()))).backward();
    REQUIRE(torch::allclose(module.layer->weight.grad(), (of(0) + of(1)) / 2));
  });
}

void two_wrappers_in_one_backward() {
  on_ranks("two", [](ddp::Group& group) {
    Net generator_module;
    torch::nn::Linear judge_module(2, 1);
    ddp::torch::DistributedDataParallel generator(group, generator_module);
    ddp::torch::DistributedDataParallel judge(group, judge_module);
    loss_of(judge(generator(values({5, 3}, group.rank())))).backward();
    Net alone;
    torch::nn::Linear alone_judge(2, 1);
    {
      const torch::NoGradGuard no_grad;
      alone_judge->weight.copy_(judge_module->weight), alone_judge->bias.copy_(judge_module->bias);
    }
    for (int rank = 0; rank < 2; ++rank) (loss_of(alone_judge(alone(values({5, 3}, rank)))) / 2).backward();
    for (std::size_t i = 0; i < 6; ++i)
      REQUIRE(close(generator_module->parameters()[i].grad(), alone->parameters()[i].grad()));
    REQUIRE(close(judge_module->weight.grad(), alone_judge->weight.grad()));
  });
}

void buffers_follow_rank_0_in_training() {
  on_ranks("buffers", [](ddp::Group& group) {
    Net module;
    ddp::torch::DistributedDataParallel net(group, module);
    module->seen += group.rank() + 1;
    (void)net(values({5, 3}, 0));
    REQUIRE(module->seen.item<float>() == 1);
    net->eval();
    module->seen += group.rank();
    if (group.rank() == 0) (void)net(values({5, 3}, 0)); /* nobody else comes */
    REQUIRE(module->seen.item<float>() == 1 + static_cast<float>(group.rank()));
  });
}

void checkpoints_have_plain_names_and_both_kinds_of_optimizers_step() {
  const auto path = (std::filesystem::temp_directory_path() / ("ddp_torch_" + std::to_string(::getpid()))).string();
  on_ranks("state", [&](ddp::Group& group) {
    Net module, copy;
    ddp::torch::DistributedDataParallel net(group, module, small_buckets());
    ddp::OptimizerOptions in_backward;
    in_backward.in_backward = 1;
    ddp::SgdOptions rule;
    rule.rate = 0.5, rule.momentum = 0.9;
    auto ours = ddp::Optimizer::sgd(net.model(), rule, in_backward);
    torch::optim::SGD theirs(copy->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
    for (int step = 0; step < 3; ++step) {
      module->zero_grad(), copy->zero_grad();
      loss_of(net(values({5, 3}, group.rank()))).backward();
      ours.step();
      for (int rank = 0; rank < 2; ++rank) (loss_of(copy(values({5, 3}, rank))) / 2).backward();
      theirs.step();
    }
    for (std::size_t i = 0; i < 6; ++i) REQUIRE(close(module->parameters()[i], copy->parameters()[i]));
    ddp::State state(net.model());
    state.add(ours).save(path);
    const auto before = module->first->weight.clone();
    {
      const torch::NoGradGuard no_grad;
      module->first->weight.zero_();
    }
    state.load(path);
    REQUIRE(torch::equal(module->first->weight, before) && ours.step_count() == 3);
  });
  std::FILE* file = std::fopen(path.c_str(), "rb");
  std::vector<char> head(2000);
  head.resize(std::fread(head.data(), 1, head.size(), file));
  (void)std::fclose(file);
  std::filesystem::remove(path);
  const std::string text(head.begin(), head.end());
  REQUIRE(text.find("\"first.weight\"") != std::string::npos && text.find("module.") == std::string::npos);
}

void what_cannot_be_lent_or_has_moved_is_named() {
  on_ranks("moved", [](ddp::Group& group) {
    Net module;
    {
      ddp::torch::DistributedDataParallel net(group, module);
      loss_of(net(values({5, 3}, 0))).backward();
    }
    REQUIRE(module->first->weight.grad().defined()); /* a tensor of its own now */
    loss_of(module(values({5, 3}, 0))).backward();   /* and nobody listens */
    ddp::torch::DistributedDataParallel net(group, module);
    module->first->weight.set_data(module->first->weight.clone());
    const auto moved = error_of([&] { (void)net(values({5, 3}, 0)); }, DDP_ERROR_INVALID_STATE);
    REQUIRE(moved.find("first.weight") != std::string::npos);
    Net turned;
    turned->first->weight.set_data(values({3, 4}, 1).t());
    const auto text = error_of([&] { ddp::torch::DistributedDataParallel other(group, turned); }, DDP_ERROR_NOT_SUPPORTED);
    REQUIRE(text.find("first.weight") != std::string::npos && text.find("contiguous") != std::string::npos);
    group.barrier(); /* nobody leaves before the others have seen theirs */
  });
}

}  // namespace

int main() {
  torch::set_num_threads(1);
  const std::pair<const char*, void (*)()> tests[] = {
#define TEST(name) {#name, name}
      TEST(gradients_are_the_mean_and_lie_in_the_buckets),
      TEST(no_sync_accumulates),
      TEST(unused_parameters_are_named_or_allowed),
      TEST(an_exception_in_backward_reaches_the_other_ranks),
      TEST(an_exception_before_the_first_gradient_reaches_them_too),
      TEST(a_layer_of_two_wrapped_modules_is_averaged_by_the_one_that_is_used),
      TEST(a_parameter_may_be_used_beside_the_outputs),
      TEST(modules_may_be_on_the_stack_and_have_a_layer_twice),
      TEST(two_wrappers_in_one_backward),
      TEST(buffers_follow_rank_0_in_training),
      TEST(checkpoints_have_plain_names_and_both_kinds_of_optimizers_step),
      TEST(what_cannot_be_lent_or_has_moved_is_named)};
  int failed = 0;
  for (const auto& [name, test] : tests) {
    try {
      test();
      std::printf("ok      %s\n", name);
    } catch (const std::exception& error) {
      ++failed;
      std::printf("FAILED  %s: %s\n", name, error.what());
    }
  }
  return failed == 0 ? 0 : 1;
}
