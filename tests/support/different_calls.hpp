// SPDX-License-Identifier: Apache-2.0
// Every collective public call, ready to be made on one group: what happens when ranks make different ones, and when one
// rank is late.
#pragma once

#include "checkpoint/state.hpp"
#include "extra/batch_norm/batch_norm.hpp"
#include "group/collective_call.hpp"
#include "group/messages.hpp"
#include "group/split.hpp"
#include "model/average.hpp"
#include "model/gradients.hpp"
#include "model/optimizer_slot.hpp"
#include "model/pulled.hpp"
#include "model/replicas.hpp"
#include "model/sync_buffers.hpp"
#include "model/uneven.hpp"
#include "optim/sgd.hpp"
#include "parts/model_pass.hpp"
#include "support/group_paths.hpp"
#include "support/rule_options.hpp"

namespace ddp::test {

/// A group with a model of each kind, all small. Tensors have shapes for which calls of different functions send the same
/// number of elements of the same type, so that only their names tell them apart.
class CallWorld {
 public:
  /// `uneven`: with a model that ranks may join; its group meets before every exchange of the control plane.
  CallWorld(std::shared_ptr<group::Group> made, bool uneven) : group(std::move(made)) {
    plain = make_model(DDP_PROGRESS_CALLER, parts::Hook{});
    plain->commit();
    threaded = make_model(DDP_PROGRESS_THREAD, parts::Hook{});
    threaded->commit();
    parts::Hook pulled;
    pulled.kind = parts::Hook::Kind::kPulled;
    pulled.name = "pulled";
    by_hand = make_model(DDP_PROGRESS_CALLER, pulled);
    by_hand->commit();
    sharded = make_model(DDP_PROGRESS_CALLER, parts::Hook{});
    sharded->commit();
    SgdOptions options;
    options.shard = 1;
    optimizer = std::make_shared<optim::Sgd>(sharded, options, options);
    sharded->optimizer_slot().attach(std::shared_ptr<parts::BlockUpdate>(optimizer, optimizer->in_passes()));
    if (uneven) {
      joining = make_model(DDP_PROGRESS_CALLER, parts::Hook{}, 1);
      joining->commit();
    }
    uncommitted = make_model(DDP_PROGRESS_CALLER, parts::Hook{});
  }

  std::shared_ptr<model::Model> make_model(ddp_progress progress, parts::Hook hook, int32_t uneven = 0) {
    ddp_model_options options{.first_bucket_bytes = 16, .bucket_bytes = 16, .progress = progress, .uneven_inputs = uneven};
    auto model = std::make_shared<model::Model>(group, options);
    model->set_hook(std::move(hook));
    for (int i = 0; i < 3; ++i) {
      memory.emplace_back(std::make_unique<std::vector<double>>(4, 1.0));
      model->add_parameter("p" + std::to_string(i), flat_tensor(memory.back()->data(), DDP_F32, 5), nullptr);
    }
    memory.emplace_back(std::make_unique<std::vector<double>>(4, 2.0));
    model->add_buffer("b", flat_tensor(memory.back()->data(), DDP_F64, 4));
    return model;
  }

  void pass(model::Model& model, bool pull = false) {
    model.begin_backward(DDP_PASS_REDUCE);
    for (int32_t i = 0; i < 3; ++i) model.pass().mark_ready(i);
    while (pull && model::next_bucket(model, true) != nullptr) model::finish_bucket(model, std::nullopt);
    model.end_backward();
  }

  void normalise(bool forward) {
    ddp_batch_norm_options options{.epsilon = 1e-5, .momentum = 0.1, .training = 1};
    const auto channels = [&](std::vector<double>& values) { return flat_tensor(values.data(), DDP_F64, 2); };
    Tensor x = flat_tensor(batch.data(), DDP_F64, 8), y = flat_tensor(result.data(), DDP_F64, 8);
    for (Tensor* const tensor : {&x, &y}) {
      tensor->ndim = 2;
      tensor->shape = {4, 2};
    }
    if (forward) {
      batch_norm::Forward call{x, {}, {}, {}, {}, y, channels(mean), channels(invstd)};
      batch_norm::forward(*group, options, call);
    } else {
      batch_norm::Backward call{};
      call.dy = call.x = x;
      call.saved_mean = channels(mean);
      call.saved_invstd = channels(invstd);
      call.count = 4;
      call.dx = y;
      batch_norm::backward(*group, options, call);
    }
  }

  std::shared_ptr<group::Group> group;
  std::vector<std::unique_ptr<std::vector<double>>> memory;
  std::shared_ptr<model::Model> plain, threaded, by_hand, sharded, joining, uncommitted;
  std::shared_ptr<optim::Sgd> optimizer;
  std::vector<double> in = std::vector<double>(64, 1.0), out = std::vector<double>(64, 0.0);
  std::vector<double> batch = {1, 2, 3, 4, 5, 6, 7, 9}, result = std::vector<double>(8), mean = {1, 2}, invstd = {1, 1};
  std::vector<int64_t> indices = {1, 3};
};

struct CollectiveCall {
  std::vector<std::string> names;  // as an error may name it
  std::function<void(CallWorld&)> make;
  bool uneven = false;
};

/// Those of ddp/messages.h, and the others behind them.
inline std::vector<CollectiveCall> with_messages(const std::vector<CollectiveCall>& others) {
  const auto numbers = [](std::vector<double>& values, int64_t count) { return flat_tensor(values.data(), DDP_F64, count); };
  std::vector<CollectiveCall> calls = {
      {{"ddp_group_reduce"}, [=](CallWorld& w) { group::reduce(*w.group, numbers(w.in, 4), DDP_SUM, 0); }},
      {{"ddp_group_gather"},
       [=](CallWorld& w) {
         const Tensor all = numbers(w.out, 4 * w.group->size());
         group::gather(*w.group, numbers(w.in, 4), &all, 0);
       }},
      {{"ddp_group_scatter"},
       [=](CallWorld& w) {
         const Tensor all = numbers(w.in, 4 * w.group->size());
         group::scatter(*w.group, &all, numbers(w.out, 4), 0);
       }},
      {{"ddp_group_all_to_all"},
       [=](CallWorld& w) {
         const int64_t count = 4 * w.group->size();
         group::all_to_all(*w.group, numbers(w.in, count), numbers(w.out, count), {});
       }},
      {{"ddp_group_all_gather_counts"},
       [=](CallWorld& w) {
         const std::vector<int64_t> counts(static_cast<size_t>(w.group->size()), 4);
         group::all_gather_counts(*w.group, numbers(w.in, 4), numbers(w.out, 4 * w.group->size()), counts);
       }},
  };
  calls.insert(calls.end(), others.begin(), others.end());
  return calls;
}

/// The list of the headers: whatever their comments call collective.
inline const std::vector<CollectiveCall>& collective_calls() {
  const auto numbers = [](std::vector<double>& values, int64_t count) { return flat_tensor(values.data(), DDP_F64, count); };
  static const std::vector<CollectiveCall> calls = with_messages({
      {{"ddp_group_barrier"}, [](CallWorld& w) { w.group->barrier(); }},
      {{"ddp_group_all_reduce"}, [=](CallWorld& w) { w.group->all_reduce(numbers(w.in, 4), DDP_SUM); }},
      {{"ddp_group_all_gather"},
       [=](CallWorld& w) { w.group->all_gather(numbers(w.in, 7), numbers(w.out, 7 * w.group->size())); }},
      {{"ddp_group_reduce_scatter"},
       [=](CallWorld& w) { w.group->reduce_scatter(numbers(w.in, 4 * w.group->size()), numbers(w.out, 4), DDP_SUM); }},
      {{"ddp_group_broadcast"}, [=](CallWorld& w) { w.group->broadcast(numbers(w.in, 4), 0); }},
      {{"ddp_group_reduce_metrics"}, [=](CallWorld& w) { group::reduce_metrics(*w.group, numbers(w.in, 4), DDP_SUM); }},
      {{"ddp_group_all_reduce_rows"},
       [=](CallWorld& w) {
         Tensor rows = numbers(w.in, 4);
         rows.ndim = 2;
         rows.shape = {2, 2};
         (void)w.group->all_reduce_rows(flat_tensor(w.indices.data(), DDP_I64, 2), rows, DDP_SUM);
       }},
      {{"ddp_model_commit"}, [](CallWorld& w) { w.uncommitted->commit(); }},
      {{"ddp_model_sync_buffers"}, [](CallWorld& w) { sync_buffers(*w.plain, 0); }},
      {{"ddp_model_sync_buffers"}, [](CallWorld& w) { sync_buffers(*w.threaded, 0); }},
      {{"ddp_model_average_parameters"}, [](CallWorld& w) { average_parameters(*w.threaded); }},
      {{"ddp_model_check_replicas"}, [](CallWorld& w) { w.plain->replicas().check(); }},
      {{"ddp_model_average_parameters"}, [](CallWorld& w) { average_parameters(*w.plain); }},
      {{"ddp_model_get_grad_norm"}, [](CallWorld& w) { (void)w.sharded->gradients().norm(INFINITY); }},
      {{"ddp_model_clip_grad_norm"}, [](CallWorld& w) { (void)w.sharded->gradients().clip_norm(1, 2); }},
      {{"ddp_optimizer_step"},
       [](CallWorld& w) {
         w.sharded->gradients().take_reduced();  // a step without a pass is refused on its rank
         w.optimizer->step(nullptr);
       }},
      {{"ddp_batch_norm_forward"}, [](CallWorld& w) { w.normalise(true); }},
      {{"ddp_batch_norm_backward"}, [](CallWorld& w) { w.normalise(false); }},
      {{"ddp_state_save"},
       [](CallWorld& w) {
         checkpoint::save_stream(
             "ddp_state_save", {*w.plain}, {}, [](const void*, int64_t) { return 0; }, std::nullopt);
       }},
      {{"ddp_state_save_file"},
       [](CallWorld& w) { checkpoint::save_file("ddp_state_save_file", {*w.plain}, {}, "/dev/null/none", std::nullopt); }},
      {{"ddp_state_load"},
       [](CallWorld& w) {
         (void)checkpoint::load_stream(
             "ddp_state_load", {*w.plain}, [](void*, int64_t) { return int64_t{0}; }, std::nullopt);
       }},
      {{"ddp_state_load_file"},
       [](CallWorld& w) { (void)checkpoint::load_file("ddp_state_load_file", {*w.plain}, "/dev/null/none", std::nullopt); }},
      {{"ddp_model_end_backward"}, [](CallWorld& w) { w.pass(*w.plain); }},
      {{"ddp_model_end_backward"}, [](CallWorld& w) { w.pass(*w.threaded); }},
      {{"ddp_model_next_bucket", "a hook of a backward pass"}, [](CallWorld& w) { w.pass(*w.by_hand, true); }},
      {{"ddp_model_join"}, [](CallWorld& w) { join(*w.joining); }, true},
      {{"ddp_group_split"},
       [](CallWorld& w) {
         (void)group::split_group(*w.group, {0, 0}, w.group->options());
       }},
  });
  return calls;
}

/// Loading and saving where nothing can be read or written: the same error on all ranks, and the group stays whole.
inline void make_in_vain(const CollectiveCall& call, CallWorld& world) {
  try {
    call.make(world);
  } catch (const Error& error) {
    if (error.status() == DDP_ERROR_IO) return;
    throw;
  }
}

inline bool names_any(const std::string& text, const CollectiveCall& call) {
  for (const std::string& name : call.names)
    if (text.find(name) != std::string::npos) return true;
  return false;
}

using CallPair = std::pair<size_t, size_t>;

/// Rank `odd` makes the first call and the other ranks the second one, each pair on a group of its own, many at the same
/// time.
inline void expect_mismatch(Path path, int size, const std::vector<CallPair>& pairs, int odd = 0) {
  constexpr size_t kAtOnce = 16;
  run_at(path, size, [&](const std::string& place, ddp_group_options options, int rank) {
    options.timeout_ms = 50'000;
    options.heartbeat_ms = 1'000;
    std::atomic<size_t> failures{0};
    std::string text;
    std::mutex mutex;  // guards text
    const auto make_one = [&](size_t n) {
      const CollectiveCall& mine = collective_calls()[rank == odd ? pairs[n].first : pairs[n].second];
      const CollectiveCall& other = collective_calls()[rank == odd ? pairs[n].second : pairs[n].first];
      const std::string what = "rank " + std::to_string(rank) + " in " + mine.names[0] + " against " + other.names[0];
      std::optional<CallWorld> world;
      const auto begin = std::chrono::steady_clock::now();
      const std::string said = expect_error(DDP_ERROR_DIFFERENT_CALLS, [&] {
        world.emplace(group::Group::create((place + "#" + std::to_string(n)).c_str(), options), mine.uneven || other.uneven);
        mine.make(*world);  // two of three ranks may have found out before this one has left the last call of the line above
      });
      const auto took =
          std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count();
      if (took > 25'000) throw std::runtime_error(what + " took " + std::to_string(took) + " ms");
      if (!names_any(said, mine) || !names_any(said, other)) throw std::runtime_error(what + " does not name both: " + said);
    };
    std::vector<std::thread> threads;
    for (size_t first = 0; first < kAtOnce; ++first)
      threads.emplace_back([&, first] {
        for (size_t n = first; n < pairs.size(); n += kAtOnce) {
          try {
            make_one(n);
          } catch (const std::exception& error) {
            const std::lock_guard lock(mutex);
            if (++failures < 6)
              text += std::string(error.what()) + " [pair " + std::to_string(pairs[n].first) + ", " +
                      std::to_string(pairs[n].second) + "]\n";
          }
        }
      });
    for (std::thread& thread : threads) thread.join();
    expect(failures.load() == 0, std::to_string(failures.load()) + " pairs, among them:\n" + text);
  });
}

/// One rank of three comes to each call three seconds after the others, all calls at the same time.
inline void expect_patience(Path path) {
  run_at(path, 3, [](const std::string& place, ddp_group_options options, int rank) {
    options.timeout_ms = 50'000;
    std::vector<std::thread> threads;
    std::string text;
    std::mutex mutex;  // guards text
    for (size_t n = 0; n < collective_calls().size(); ++n)
      threads.emplace_back([&, n] {
        try {
          const CollectiveCall& call = collective_calls()[n];
          CallWorld world(group::Group::create((place + "#late" + std::to_string(n)).c_str(), options), call.uneven);
          world.group->barrier();
          if (rank == static_cast<int>(n % 3)) std::this_thread::sleep_for(std::chrono::seconds(3));
          make_in_vain(call, world);
          world.group->barrier();
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex);
          text += collective_calls()[n].names[0] + ": " + error.what() + "\n";
        }
      });
    for (std::thread& thread : threads) thread.join();
    expect(text.empty(), text);
  });
}

/// Every pair of calls that are not the same.
inline std::vector<CallPair> all_pairs() {
  std::vector<CallPair> pairs;
  for (size_t i = 0; i < collective_calls().size(); ++i)
    for (size_t j = 0; j < collective_calls().size(); ++j)
      if (i != j) pairs.emplace_back(i, j);
  return pairs;
}

/// Each call against a few others, in both directions.
inline std::vector<CallPair> some_pairs() {
  std::vector<CallPair> pairs;
  const size_t count = collective_calls().size();
  for (size_t i = 0; i < count; ++i)
    for (const size_t step : {size_t{1}, size_t{7}, count - 5}) pairs.emplace_back(i, (i + step) % count);
  return pairs;
}

}  // namespace ddp::test
