// SPDX-License-Identifier: Apache-2.0
// ddp/messages.h.
#include "ddp/messages.h"

#include <optional>
#include <vector>

#include "capi/tables.hpp"
#include "capi/tensors.hpp"
#include "group/messages.hpp"

using namespace ddp;
using namespace ddp::capi;

ddp_status ddp_group_send(ddp_group* group, const ddp_tensor* tensor, int32_t peer, int64_t tag, void* stream) {
  return collective_short(group, "ddp_group_send", [&](group::Group& object) {
    group::send_message(object, bound_tensor(object, tensor, "ddp_group_send: tensor"), peer, tag, stream);
  });
}

ddp_status ddp_group_receive(ddp_group* group, const ddp_tensor* tensor, int32_t source, int64_t tag, int32_t* out_source,
                             void* stream) {
  return collective_short(group, "ddp_group_receive", [&](group::Group& object) {
    const int32_t from =
        group::receive_message(object, bound_tensor(object, tensor, "ddp_group_receive: tensor"), source, tag, stream);
    if (out_source != nullptr) *out_source = from;
  });
}

ddp_status ddp_group_reduce(ddp_group* group, const ddp_tensor* tensor, ddp_reduce op, int32_t root, void* stream) {
  constexpr const char* kName = "ddp_group_reduce";
  return collective_short(group, kName, [&](group::Group& object) {
    check_reduce(op, kName);
    group::reduce(object, bound_tensor(object, tensor, "ddp_group_reduce: tensor"), op, root, stream);
  });
}

ddp_status ddp_group_gather(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output, int32_t root,
                            void* stream) {
  return run_collective(group, "ddp_group_gather", [&](group::Group& object) {
    const Tensor mine = bound_tensor(object, input, "ddp_group_gather: input");
    const std::optional<Tensor> all = tensor_of_root(object, output, root, "ddp_group_gather: output");
    group::gather(object, mine, all ? &*all : nullptr, root, stream);
  });
}

ddp_status ddp_group_scatter(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output, int32_t root,
                             void* stream) {
  return run_collective(group, "ddp_group_scatter", [&](group::Group& object) {
    const Tensor mine = bound_tensor(object, output, "ddp_group_scatter: output");
    const std::optional<Tensor> all = tensor_of_root(object, input, root, "ddp_group_scatter: input");
    group::scatter(object, all ? &*all : nullptr, mine, root, stream);
  });
}

ddp_status ddp_group_all_to_all(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output,
                                const int64_t* input_counts, const int64_t* output_counts, void* stream) {
  return run_collective(group, "ddp_group_all_to_all", [&](group::Group& object) {
    group::all_to_all(object, bound_tensor(object, input, "ddp_group_all_to_all: input"),
                      bound_tensor(object, output, "ddp_group_all_to_all: output"),
                      {counts_of(object, input_counts), counts_of(object, output_counts)}, stream);
  });
}

ddp_status ddp_group_all_gather_counts(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output,
                                       const int64_t* counts, void* stream) {
  constexpr const char* kName = "ddp_group_all_gather_counts";
  return run_collective(group, kName, [&](group::Group& object) {
    require(counts, kName, "counts");
    group::all_gather_counts(object, bound_tensor(object, input, "ddp_group_all_gather_counts: input"),
                             bound_tensor(object, output, "ddp_group_all_gather_counts: output"), counts_of(object, counts),
                             stream);
  });
}
