// SPDX-License-Identifier: Apache-2.0
// A gradient that is unused on this rank brings no stream, and still has an order: what the program has enqueued that reads
// or writes it, on the stream of the end of the pass, comes before what the other ranks send.

#include "gpu/support/trainer.hpp"
#include "gpu/support/world.hpp"

using namespace ddp::test::card;

namespace {

/// Registered last, so the first buckets are theirs: the last one alone leaves a bucket of which a part is unused.
const std::vector<std::vector<size_t>> kUnused = {{0, 1, 2, 3, 4, 5, 6, 7}, {6, 7}, {7}};

bool is_in(const std::vector<size_t>& set, size_t p) { return std::find(set.begin(), set.end(), p) != set.end(); }

/// Rank 1 has `unused`; rank 0 uses everything.
struct Half {
  Half(const Rank& at, bool own, const std::vector<size_t>& of_rank_1, bool weights = false)
      : t(at.group, plan_of(at, own, weights)), slow(at.place), side(at.place) {
    if (at.rank == 1) unused = of_rank_1;
  }
  static Plan plan_of(const Rank& at, bool own, bool weights) {
    Plan plan;
    plan.place = at.place;
    plan.rank = at.rank;
    plan.fine = false;
    plan.own_gradients = own;
    plan.options = [weights](ddp_model_options& options) {
      options.unused = DDP_UNUSED_ALLOW;
      if (weights) options.divisor = DDP_DIVISOR_WEIGHTS;
    };
    return plan;
  }
  /// Gradients that were put aside, on a stream.
  void mark(const Stream& on) {
    for (const size_t p : unused) OK(ddp_model_mark_unused(t.model.get(), static_cast<int32_t>(p)));
    for (auto p = t.plan.counts.size(); p-- > 0;) {
      if (is_in(unused, p)) continue;
      t.copy_grad(p, on.get());
      OK(ddp_model_mark_ready(t.model.get(), static_cast<int32_t>(p), on.get()));
    }
  }
  void begin(ddp_pass mode = DDP_PASS_REDUCE) { OK(ddp_model_begin_backward(t.model.get(), mode)); }
  void end() { OK(ddp_model_end_backward(t.model.get(), t.stream.get())); }
  void hold_up(const Stream& stream) {
    if (!unused.empty()) slow.enqueue(stream.get());
  }

  std::vector<size_t> unused;
  Trainer t;
  const SlowWork slow;
  const Stream side;  // a second stream of the program
};

using Number = std::function<double(size_t, int64_t)>;

Number mean_without(const std::vector<size_t>& unused, int step) {
  return [=](size_t p, int64_t i) {
    return (whole_gradient(0, step, p, i) + (is_in(unused, p) ? 0 : whole_gradient(1, step, p, i))) / 2;
  };
}

void each_way(const std::function<void(const Rank&, bool own, const std::vector<size_t>& unused)>& body) {
  run_world(2, [&](const Rank& at) {
    for (const bool own : {false, true})
      for (const std::vector<size_t>& unused : kUnused) body(at, own, unused);
  });
}

ddp_case(what_sets_gradients_to_zero_comes_first) {
  each_way([](const Rank& at, bool own, const std::vector<size_t>& unused) {
    Half half(at, own, unused);
    half.t.pass(0);
    half.t.put_aside(1);
    half.hold_up(half.t.stream);
    OK(ddp_model_zero_grad(half.t.model.get(), half.t.stream.get()));
    half.begin();
    half.mark(half.t.stream);
    half.end();
    expect_same_bytes(half.t.grad_bytes(), half.t.expected_grads(mean_without(unused, 1)), "means after zero_grad");
  });
}

ddp_case(the_step_before_reads_its_own_means) {
  each_way([](const Rank& at, bool own, const std::vector<size_t>& unused) {
    Half half(at, own, unused);
    auto rule = defaults<ddp_sgd_options>();
    rule.rate = 1;
    ddp_optimizer* made = nullptr;
    OK(ddp_optimizer_create_sgd(half.t.model.get(), &rule, nullptr, &made));
    const OptimizerHandle optimizer(made);
    half.t.pass(0);
    half.t.put_aside(1);
    half.hold_up(half.t.stream);
    OK(ddp_optimizer_step(optimizer.get(), half.t.stream.get()));
    half.begin();
    half.mark(half.t.stream);
    half.end();
    const Number first = mean_without({}, 0);
    expect_same_bytes(half.t.value_bytes(), half.t.expected_grads([&](size_t p, int64_t i) {
      return static_cast<float>(std::sin(static_cast<double>(i) + static_cast<double>(p))) - static_cast<float>(first(p, i));
    }),
                      "values of the step before");
    expect_same_bytes(half.t.grad_bytes(), half.t.expected_grads(mean_without(unused, 1)), "means");
  });
}

/// A program's own update of the unused gradients, on a stream that only the end of the pass comes after.
ddp_case(what_reads_them_on_another_stream_comes_first) {
  each_way([](const Rank& at, bool own, const std::vector<size_t>& unused) {
    Half half(at, own, unused);
    half.t.pass(0);
    half.t.put_aside(1);
    half.side.follow(half.t.stream);
    half.hold_up(half.side);
    std::vector<Memory> seen;
    for (const size_t p : half.unused) {
      seen.emplace_back(at.place, half.t.bytes_of(p));
      GPU_CALL(copy(seen.back().data(), half.t.grads[p], half.t.bytes_of(p), half.side.get()));
    }
    half.begin();
    half.mark(half.t.stream);
    half.t.stream.follow(half.side);
    half.end();
    half.t.stream.wait();
    const Number before = mean_without({}, 0);
    for (size_t k = 0; k < seen.size(); ++k) {
      const size_t p = half.unused[k];
      expect_same_bytes(seen[k].read(), encoded(DDP_F32, half.t.plan.counts[p], [&](int64_t i) { return before(p, i); }),
                        "what was read");
    }
    expect_same_bytes(half.t.grad_bytes(), half.t.expected_grads(mean_without(unused, 1)), "means");
  });
}

/// Accumulated, then scaled on another stream, then unused: it contributes what it holds.
ddp_case(what_changes_an_accumulated_gradient_comes_before_it_is_read) {
  each_way([](const Rank& at, bool own, const std::vector<size_t>& unused) {
    Half half(at, own, unused);
    half.t.pass(0, DDP_PASS_ACCUMULATE);
    half.t.put_aside(1);
    half.side.follow(half.t.stream);
    half.hold_up(half.side);
    OK(ddp_model_scale_grad(half.t.model.get(), 2, half.side.get()));
    half.begin();
    half.mark(half.side);
    half.t.stream.follow(half.side);
    half.end();
    expect_same_bytes(half.t.grad_bytes(), half.t.expected_grads([&](size_t p, int64_t i) {
      return (whole_gradient(0, 1, p, i) +
              (is_in(unused, p) ? 2 * whole_gradient(1, 0, p, i) : whole_gradient(1, 1, p, i))) /
             2;
    }),
                      "means");
  });
}

/// A stream of a mark is valid until its pass has ended, and no longer.
ddp_case(a_stream_of_an_accumulating_pass_may_be_gone_when_its_gradients_are_reduced) {
  each_way([](const Rank& at, bool own, const std::vector<size_t>& unused) {
    Half half(at, own, unused);
    half.t.put_aside(0);
    std::optional<Stream> gone(at.place);
    half.begin(DDP_PASS_ACCUMULATE);
    half.slow.enqueue(gone->get());
    for (auto p = half.t.plan.counts.size(); p-- > 0;) {
      half.t.copy_grad(p, gone->get());
      OK(ddp_model_mark_ready(half.t.model.get(), static_cast<int32_t>(p), gone->get()));
    }
    half.end();
    gone.reset();
    half.t.put_aside(1);
    half.begin();
    half.mark(half.t.stream);
    half.end();
    expect_same_bytes(half.t.grad_bytes(), half.t.expected_grads([&](size_t p, int64_t i) {
      return (whole_gradient(0, 1, p, i) + whole_gradient(1, is_in(unused, p) ? 0 : 1, p, i)) / 2;
    }),
                      "means");
  });
}

ddp_world_case(a_skipped_pass_writes_behind_its_stream, 2) {
  Half half(at, true, kUnused[0], true);
  half.t.pass(0);
  half.hold_up(half.t.stream);
  OK(ddp_model_zero_grad(half.t.model.get(), half.t.stream.get()));
  if (at.rank == 1)
    OK(ddp_model_skip_backward(half.t.model.get(), half.t.stream.get()));
  else
    half.t.pass(1);
  expect_same_bytes(half.t.grad_bytes(),
                    half.t.expected_grads([](size_t p, int64_t i) { return whole_gradient(0, 1, p, i); }), "means");
}

gpu_cases(need_world());

}  // namespace
