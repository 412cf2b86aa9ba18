// SPDX-License-Identifier: Apache-2.0
// The calls of the public API during which something runs out: the objects before the call, and the call. A call allocates
// nothing of its own, so that every request that is counted is the library's.
#pragma once

#include <ddp/experimental.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace ddp::test {

/// What a scene works with; one a rank.
struct Stage {
  int32_t rank = 0, size = 2;
  std::string place, file;
  ddp_group_options group_options{};
  ddp_group* group = nullptr;
  ddp_model* model = nullptr;
  ddp_model* other = nullptr;
  ddp_optimizer* optimizer = nullptr;
  ddp_ema* ema = nullptr;
  float values[12][64] = {}, grads[12][64] = {}, out[256] = {};
  double statistics[2][8] = {};
  int32_t parameters = 0;
};

struct Scene {
  const char* name;
  void (*prepare)(Stage&);
  ddp_status (*call)(Stage&);
  enum Kind {
    kCollective,
    kLocal,     // at its end at least, so the others need not fail with it
    kConnects,  // a collective that makes connections
    kMakesGroup
  } kind = kCollective;
};

// Every step of a call must be DDP_OK for the next to be made.
#define DDP_SCENE_TRY(step) \
  if (const ddp_status status = (step); status != DDP_OK) return status

inline void must(ddp_status status) {
  if (status == DDP_OK) return;
  std::fprintf(stderr, "preparing failed: %s: %s\n", ddp_status_name(status), ddp_last_error());
  _exit(90);
}

inline ddp_tensor floats(float* data, int64_t count) {
  ddp_tensor tensor;
  ddp_tensor_init(&tensor, data, DDP_F32, 1, &count);
  return tensor;
}

inline ddp_model_options model_options() {
  ddp_model_options options;
  ddp_model_options_init(&options, sizeof options);
  options.first_bucket_bytes = 256;
  options.bucket_bytes = 512;
  return options;
}

/// Parameters 0 to count - 1 with gradients of their own, one with libddp's, one of two dimensions, and a buffer.
inline ddp_status add_model(Stage& stage, int32_t count, const ddp_model_options& options) {
  DDP_SCENE_TRY(ddp_model_create(stage.group, &options, &stage.model));
  for (int32_t p = 0; p < count; ++p) {
    char name[48];
    std::snprintf(name, sizeof name, "a layer with a long name, number %d", p);
    for (int i = 0; i < 64; ++i) stage.values[p][i] = static_cast<float>(p + i), stage.grads[p][i] = 1;
    ddp_tensor value = floats(stage.values[p], 64);
    const ddp_tensor grad = floats(stage.grads[p], 64);
    if (p == 1) {
      const int64_t shape[] = {8, 8};
      ddp_tensor_init(&value, stage.values[p], DDP_F32, 2, shape);
    }
    DDP_SCENE_TRY(ddp_model_add_parameter(stage.model, name, &value, p == 1 ? nullptr : &grad, nullptr));
  }
  const ddp_tensor buffer = floats(stage.out, 3);
  DDP_SCENE_TRY(ddp_model_add_buffer(stage.model, "a buffer with a long name, number 0", &buffer, nullptr));
  stage.parameters = count;
  return DDP_OK;
}

inline ddp_status pass(Stage& stage, ddp_pass mode = DDP_PASS_REDUCE) {
  DDP_SCENE_TRY(ddp_model_begin_backward(stage.model, mode));
  for (int32_t p = stage.parameters; p-- > 0;) DDP_SCENE_TRY(ddp_model_mark_ready(stage.model, p, nullptr));
  return ddp_model_end_backward(stage.model, nullptr);
}

inline ddp_status training_step(Stage& stage) {
  DDP_SCENE_TRY(pass(stage));
  return ddp_optimizer_step(stage.optimizer, nullptr);
}

template <class Change>
void committed(Stage& stage, Change&& change, int32_t count = 5) {
  ddp_model_options options = model_options();
  change(options);
  must(add_model(stage, count, options));
  must(ddp_model_commit(stage.model, nullptr));
}
inline void committed(Stage& stage) {
  committed(stage, [](ddp_model_options&) {});
}

/// The first one is committed, the second is about to be.
inline void second_model(Stage& stage) {
  committed(stage);
  stage.other = stage.model;
  must(add_model(stage, stage.parameters, model_options()));
}

inline ddp_status add_adam(Stage& stage, int32_t shard, int32_t in_backward, double max_norm = 0, int32_t late = 0) {
  ddp_adam_options options;
  ddp_adam_options_init(&options, sizeof options);
  ddp_optimizer_options shared;
  ddp_optimizer_options_init(&shared, sizeof shared);
  shared.shard = shard;
  shared.in_backward = in_backward;
  shared.max_norm = max_norm;
  shared.late_values = late;
  return ddp_optimizer_create_adam(stage.model, &options, &shared, &stage.optimizer);
}

template <int32_t kShard, int32_t kInBackward, int32_t kMaxNorm = 0, int32_t kLate = 0>
void with_adam(Stage& stage) {
  committed(stage);
  must(add_adam(stage, kShard, kInBackward, kMaxNorm, kLate));
}

inline ddp_status late_step(Stage& stage) {
  DDP_SCENE_TRY(training_step(stage));
  return ddp_model_wait_values(stage.model);
}

inline int32_t descend(void*, const ddp_update_slice* slice) {
  auto* const value = static_cast<float*>(slice->value);
  auto* const seen = static_cast<float*>(slice->state[0]);
  for (int64_t i = 0; i < slice->count; ++i) value[i] -= 0.5F * static_cast<const float*>(slice->grad)[i] + 0 * ++seen[i];
  return 0;
}

/// A rule of the program.
template <int32_t kShard, int32_t kInBackward>
void with_own_rule(Stage& stage) {
  committed(stage);
  ddp_custom_options rule;
  ddp_custom_options_init(&rule, sizeof rule);
  ddp_optimizer_options shared;
  ddp_optimizer_options_init(&shared, sizeof shared);
  shared.shard = kShard;
  shared.in_backward = kInBackward;
  shared.clip_value = 0.25;
  must(ddp_optimizer_create_custom(stage.model, &rule, &shared, "seen", descend, nullptr, nullptr, &stage.optimizer));
}

template <int32_t kShard>
void trained(Stage& stage) {
  with_adam<kShard, 0>(stage);
  must(training_step(stage));
}

inline ddp_state state_of(Stage& stage) {
  ddp_state state;
  ddp_state_init(&state, sizeof state);
  state.model = stage.model;
  state.optimizer = stage.optimizer;
  state.ema = stage.ema;
  return state;
}

inline ddp_status save(Stage& stage) {
  const ddp_state state = state_of(stage);
  return ddp_state_save_file(&state, stage.file.c_str());
}
inline ddp_status load(Stage& stage) {
  const ddp_state state = state_of(stage);
  return ddp_state_load_file(&state, stage.file.c_str(), nullptr, nullptr);
}
template <int32_t kShard>
void saved(Stage& stage) {
  trained<kShard>(stage);
  must(save(stage));
}

inline void hooked(Stage& stage, ddp_hook_fn fn) {
  must(add_model(stage, 5, model_options()));
  ddp_powersgd_options options;
  ddp_powersgd_options_init(&options, sizeof options);
  options.start_pass = 0;
  options.min_compression_rate = 1;
  must(ddp_model_set_hook(stage.model, fn, fn == &ddp_hook_powersgd ? &options : nullptr, nullptr));
  must(ddp_model_commit(stage.model, nullptr));
}

inline int32_t own_hook(void*, ddp_bucket* bucket) {
  ddp_tensor contents;
  ddp_group* group = nullptr;
  if (ddp_bucket_get_contents(bucket, &contents) != DDP_OK || ddp_bucket_get_group(bucket, &group) != DDP_OK) return 1;
  return ddp_group_all_reduce(group, &contents, DDP_AVERAGE, nullptr) == DDP_OK ? 0 : 1;
}

inline void nothing(Stage&) {}

inline ddp_status batch_norm(Stage& stage) {
  const int64_t shape[] = {4, 8};
  ddp_tensor x, y;
  ddp_tensor_init(&x, stage.values[0], DDP_F32, 2, shape);
  ddp_tensor_init(&y, stage.values[1], DDP_F32, 2, shape);
  const int64_t channels = 8;
  ddp_tensor mean, invstd;
  ddp_tensor_init(&mean, stage.statistics[0], DDP_F64, 1, &channels);
  ddp_tensor_init(&invstd, stage.statistics[1], DDP_F64, 1, &channels);
  int64_t count = 0;
  DDP_SCENE_TRY(ddp_batch_norm_forward(stage.group, nullptr, &x, nullptr, nullptr, nullptr, nullptr, &y, &mean, &invstd,
                                       &count, nullptr));
  ddp_tensor dx;
  ddp_tensor_init(&dx, stage.values[4], DDP_F32, 2, shape);
  return ddp_batch_norm_backward(stage.group, nullptr, &y, &x, nullptr, &mean, &invstd, count, &dx, nullptr, nullptr,
                                 nullptr);
}

inline ddp_status rows(Stage& stage) {
  int64_t list[] = {3, 1 + stage.rank, 7, 3};
  const int64_t count = 4, shape[] = {4, 8};
  ddp_tensor indices, data;
  ddp_tensor_init(&indices, list, DDP_I64, 1, &count);
  ddp_tensor_init(&data, stage.out, DDP_F32, 2, shape);
  int64_t rows = 0;
  return ddp_group_all_reduce_rows(stage.group, &indices, &data, DDP_SUM, &rows, nullptr);
}

inline ddp_status groups_collectives(Stage& stage) {
  const ddp_tensor one = floats(stage.out, 8), two = floats(stage.out + 64, 16);
  DDP_SCENE_TRY(ddp_group_barrier(stage.group));
  DDP_SCENE_TRY(ddp_group_all_reduce(stage.group, &one, DDP_SUM, nullptr));
  DDP_SCENE_TRY(ddp_group_all_gather(stage.group, &one, &two, nullptr));
  DDP_SCENE_TRY(ddp_group_reduce_scatter(stage.group, &two, &one, DDP_AVERAGE, nullptr));
  DDP_SCENE_TRY(ddp_group_broadcast(stage.group, &one, 1, nullptr));
  double metric = 1;
  return ddp_group_reduce_metrics(stage.group, &metric, 1, DDP_SUM);
}

/// One in the window, one that needs the receiver, and an all-to-all.
inline ddp_status exchange_messages(Stage& stage) {
  const int32_t peer = 1 - stage.rank;
  static std::array<float, 40'000> much;
  const ddp_tensor few = floats(stage.out, 8), many = floats(much.data(), static_cast<int64_t>(much.size()));
  for (const ddp_tensor* tensor : {&few, &many}) {
    if (stage.rank == 0) DDP_SCENE_TRY(ddp_group_send(stage.group, tensor, peer, 3, nullptr));
    DDP_SCENE_TRY(stage.rank == 1 ? ddp_group_receive(stage.group, tensor, peer, 3, nullptr, nullptr)
                                  : ddp_group_receive(stage.group, tensor, DDP_ANY_SOURCE, 4, nullptr, nullptr));
    if (stage.rank == 1) DDP_SCENE_TRY(ddp_group_send(stage.group, tensor, peer, 4, nullptr));
  }
  const int64_t counts[] = {3, 5}, back[] = {stage.rank == 0 ? 3 : 5, stage.rank == 0 ? 3 : 5};
  const ddp_tensor in = floats(stage.out, 8), out = floats(stage.out + 64, back[0] + back[1]);
  return ddp_group_all_to_all(stage.group, &in, &out, counts, back, nullptr);
}

/// Calls that are posted, waited for in another order.
inline ddp_status posted_calls(Stage& stage) {
  const ddp_tensor sum = floats(stage.out, 8), all = floats(stage.out + 64, 16), note = floats(stage.out + 128, 8);
  ddp_request* requests[3] = {};
  ddp_status first = ddp_group_post_all_reduce(stage.group, &sum, DDP_SUM, &requests[0], nullptr);
  if (first == DDP_OK) first = ddp_group_post_all_gather(stage.group, &note, &all, &requests[1], nullptr);
  if (first == DDP_OK)
    first = stage.rank == 0 ? ddp_group_post_send(stage.group, &sum, 1, 5, &requests[2], nullptr)
                            : ddp_group_post_receive(stage.group, &note, 0, 5, &requests[2], nullptr);
  for (int i = 2; i >= 0; --i) {
    if (first == DDP_OK) first = ddp_request_wait(requests[i], -1, nullptr);
  }
  for (ddp_request* request : requests) ddp_request_destroy(request);
  return first;
}

inline ddp_status create(Stage& stage) { return ddp_group_create(stage.place.c_str(), &stage.group_options, &stage.group); }

inline void uneven(Stage& stage) {
  committed(stage, [](ddp_model_options& options) { options.uneven_inputs = 1; });
}

inline const Scene kScenes[] = {
    {"commit", [](Stage& s) { must(add_model(s, 5, model_options())); },
     [](Stage& s) { return ddp_model_commit(s.model, nullptr); }},
    {"commit of a small model", [](Stage& s) { must(add_model(s, 1, model_options())); },
     [](Stage& s) { return ddp_model_commit(s.model, nullptr); }},
    {"commit with a hook",
     [](Stage& s) {
       must(add_model(s, 5, model_options()));
       must(ddp_model_set_hook(s.model, &ddp_hook_powersgd, nullptr, nullptr));
     },
     [](Stage& s) { return ddp_model_commit(s.model, nullptr); }},
    {"making a model", nothing, [](Stage& s) { return add_model(s, 5, model_options()); }, Scene::kLocal},
    {"collectives of a group", nothing, groups_collectives},
    {"collectives of a group, again", [](Stage& s) { must(groups_collectives(s)); }, groups_collectives},
    {"rows", nothing, rows},
    {"first messages", nothing, exchange_messages, Scene::kConnects},
    {"more messages", [](Stage& s) { must(exchange_messages(s)); }, exchange_messages},
    {"first posted calls", nothing, posted_calls, Scene::kConnects},
    {"more posted calls", [](Stage& s) { must(posted_calls(s)); }, posted_calls},
    {"a first pass", [](Stage& s) { committed(s); }, [](Stage& s) { return pass(s); }},
    {"a second pass", [](Stage& s) { committed(s), must(pass(s)); }, [](Stage& s) { return pass(s); }},
    {"a first pass by a thread",
     [](Stage& s) { committed(s, [](ddp_model_options& o) { o.progress = DDP_PROGRESS_THREAD; }); },
     [](Stage& s) { return pass(s); }},
    {"a pass with a comparison", [](Stage& s) { committed(s, [](ddp_model_options& o) { o.check_every = 1; }); },
     [](Stage& s) { return pass(s); }},
    {"check", [](Stage& s) { committed(s); }, [](Stage& s) { return ddp_model_check_replicas(s.model, nullptr); }},
    {"sync of buffers", [](Stage& s) { committed(s); },
     [](Stage& s) { return ddp_model_sync_buffers(s.model, 1, nullptr); }},
    {"average", [](Stage& s) { committed(s), must(pass(s, DDP_PASS_LOCAL)); },
     [](Stage& s) { return ddp_model_average_parameters(s.model, nullptr); }},
    {"a step", with_adam<0, 0>, training_step, Scene::kLocal},
    {"a sharded step", with_adam<1, 0>, training_step},
    {"a step with late values", with_adam<1, 0, 0, 1>, late_step},
    {"a second step with late values", [](Stage& s) { with_adam<1, 0, 0, 1>(s), must(late_step(s)); }, late_step},
    {"a sharded step with a norm", with_adam<1, 0, 1>, training_step},
    {"a step in backward", with_adam<0, 1>, training_step, Scene::kLocal},
    {"a sharded step in backward", with_adam<1, 1>, training_step},
    {"a sharded step with an own rule", with_own_rule<1, 0>, training_step},
    {"a step in backward with an own rule", with_own_rule<0, 1>, training_step},
    {"a sharded step in backward with an own rule", with_own_rule<1, 1>, training_step},
    {"making an optimizer", [](Stage& s) { committed(s); }, [](Stage& s) { return add_adam(s, 1, 0); }, Scene::kLocal},
    {"norm of gradients", [](Stage& s) { trained<1>(s), must(pass(s)); },
     [](Stage& s) {
       double norm = 0;
       return ddp_model_clip_grad_norm(s.model, 1, 2, &norm, nullptr);
     }},
    {"save", trained<0>, save},
    {"sharded save", trained<1>, save},
    {"load", saved<0>, load},
    {"sharded load", saved<1>, load},
    {"averages", [](Stage& s) { trained<0>(s); },
     [](Stage& s) {
       const double decay = 0.5;
       DDP_SCENE_TRY(ddp_ema_create(s.model, &decay, 1, &s.ema));
       DDP_SCENE_TRY(ddp_ema_update(s.ema, nullptr));
       return ddp_ema_swap(s.ema, 0, nullptr);
     },
     Scene::kLocal},
    {"batch norm", nothing, batch_norm},
    {"a pass in 16 bits", [](Stage& s) { committed(s, [](ddp_model_options& o) { o.wire = DDP_F16; }); },
     [](Stage& s) { return pass(s); }},
    {"a pass with an own hook", [](Stage& s) { hooked(s, &own_hook); }, [](Stage& s) { return pass(s); }},
    {"a pass with PowerSGD", [](Stage& s) { hooked(s, &ddp_hook_powersgd); }, [](Stage& s) { return pass(s); }},
    {"a pass with uneven inputs", uneven, [](Stage& s) { return pass(s); }},
    {"join", uneven, [](Stage& s) { return ddp_model_join(s.model, nullptr); }},
    {"join while another trains", uneven,
     [](Stage& s) {
       if (s.rank == 0) DDP_SCENE_TRY(pass(s));
       return ddp_model_join(s.model, nullptr);
     }},
    {"creating a group", nothing, create, Scene::kMakesGroup},
    {"commit of a second model", second_model, [](Stage& s) { return ddp_model_commit(s.model, nullptr); },
     Scene::kConnects},
    {"a pass while another is open", [](Stage& s) { second_model(s), must(ddp_model_commit(s.model, nullptr)); },
     [](Stage& s) {
       DDP_SCENE_TRY(ddp_model_begin_backward(s.other, DDP_PASS_REDUCE));
       DDP_SCENE_TRY(pass(s));
       for (int32_t p = s.parameters; p-- > 0;) DDP_SCENE_TRY(ddp_model_mark_ready(s.other, p, nullptr));
       return ddp_model_end_backward(s.other, nullptr);
     }},
};

}  // namespace ddp::test
