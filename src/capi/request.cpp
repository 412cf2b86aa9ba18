// SPDX-License-Identifier: Apache-2.0
// ddp/request.h.
#include "ddp/request.h"

#include <optional>
#include <vector>

#include "capi/tables.hpp"
#include "capi/tensors.hpp"
#include "group/messages.hpp"
#include "group/request.hpp"

using namespace ddp;
using namespace ddp::capi;

namespace {

/// A request keeps its group, as a model does.
struct Posted {
  std::shared_ptr<group::Group> group;
  group::RequestPtr request;
  ~Posted() {
    if (request != nullptr) request->release();
  }
};
using RequestTable = HandleTable<Posted, ddp_request, 0xd7>;

/// body(group, posting) posts. The handle is made first: without memory for it nothing is posted.
template <class Body>
ddp_status post(ddp_group* handle, const char* function, ddp_request** out_request, Body&& body) {
  return guarded([&] {
    const auto group = group_of(handle, function);
    require(out_request, function, "out_request");
    require_outside_program(*group, function);
    const auto posted = std::make_shared<Posted>();
    posted->group = group;
    ddp_request* const made = RequestTable::instance().add(posted);
    on_error(
        [&] {
          or_first_cause(*group, [&] {
            group::or_break(*group, group::Part::kCall, function, [&] { body(*group, &posted->request); });
          });
        },
        [&](const Error&) { RequestTable::instance().remove(made); });
    *out_request = made;
  });
}

std::shared_ptr<Posted> posted_of(const ddp_request* handle, const char* function) {
  return resolve(RequestTable::instance(), handle, function, "request");
}

void check_timeout(int64_t timeout_ms, const char* function) {
  if (timeout_ms < -1)
    throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: timeout_ms is %lld; it is 0 or more, or -1 for no limit", function,
                     static_cast<long long>(timeout_ms));
}

}  // namespace

ddp_status ddp_group_post_barrier(ddp_group* group, ddp_request** out_request) {
  return post(group, "ddp_group_post_barrier", out_request,
              [](group::Group& object, group::RequestPtr* posting) { object.barrier(posting); });
}

ddp_status ddp_group_post_all_reduce(ddp_group* group, const ddp_tensor* tensor, ddp_reduce op, ddp_request** out_request,
                                     void* stream) {
  constexpr const char* kName = "ddp_group_post_all_reduce";
  return post(group, kName, out_request, [&](group::Group& object, group::RequestPtr* posting) {
    check_reduce(op, kName);
    object.all_reduce(bound_tensor(object, tensor, "ddp_group_post_all_reduce: tensor"), op, stream, posting);
  });
}

ddp_status ddp_group_post_all_gather(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output,
                                     ddp_request** out_request, void* stream) {
  return post(group, "ddp_group_post_all_gather", out_request, [&](group::Group& object, group::RequestPtr* posting) {
    object.all_gather(bound_tensor(object, input, "ddp_group_post_all_gather: input"),
                      bound_tensor(object, output, "ddp_group_post_all_gather: output"), stream, posting);
  });
}

ddp_status ddp_group_post_reduce_scatter(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output, ddp_reduce op,
                                         ddp_request** out_request, void* stream) {
  constexpr const char* kName = "ddp_group_post_reduce_scatter";
  return post(group, kName, out_request, [&](group::Group& object, group::RequestPtr* posting) {
    check_reduce(op, kName);
    object.reduce_scatter(bound_tensor(object, input, "ddp_group_post_reduce_scatter: input"),
                          bound_tensor(object, output, "ddp_group_post_reduce_scatter: output"), op, stream, posting);
  });
}

ddp_status ddp_group_post_broadcast(ddp_group* group, const ddp_tensor* tensor, int32_t root, ddp_request** out_request,
                                    void* stream) {
  return post(group, "ddp_group_post_broadcast", out_request, [&](group::Group& object, group::RequestPtr* posting) {
    object.broadcast(bound_tensor(object, tensor, "ddp_group_post_broadcast: tensor"), root, stream, posting);
  });
}

ddp_status ddp_group_post_reduce(ddp_group* group, const ddp_tensor* tensor, ddp_reduce op, int32_t root,
                                 ddp_request** out_request, void* stream) {
  constexpr const char* kName = "ddp_group_post_reduce";
  return post(group, kName, out_request, [&](group::Group& object, group::RequestPtr* posting) {
    check_reduce(op, kName);
    group::reduce(object, bound_tensor(object, tensor, "ddp_group_post_reduce: tensor"), op, root, stream, posting);
  });
}

ddp_status ddp_group_post_gather(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output, int32_t root,
                                 ddp_request** out_request, void* stream) {
  return post(group, "ddp_group_post_gather", out_request, [&](group::Group& object, group::RequestPtr* posting) {
    const Tensor mine = bound_tensor(object, input, "ddp_group_post_gather: input");
    const std::optional<Tensor> all = tensor_of_root(object, output, root, "ddp_group_post_gather: output");
    group::gather(object, mine, all ? &*all : nullptr, root, stream, posting);
  });
}

ddp_status ddp_group_post_scatter(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output, int32_t root,
                                  ddp_request** out_request, void* stream) {
  return post(group, "ddp_group_post_scatter", out_request, [&](group::Group& object, group::RequestPtr* posting) {
    const Tensor mine = bound_tensor(object, output, "ddp_group_post_scatter: output");
    const std::optional<Tensor> all = tensor_of_root(object, input, root, "ddp_group_post_scatter: input");
    group::scatter(object, all ? &*all : nullptr, mine, root, stream, posting);
  });
}

ddp_status ddp_group_post_all_to_all(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output,
                                     const int64_t* input_counts, const int64_t* output_counts, ddp_request** out_request,
                                     void* stream) {
  return post(group, "ddp_group_post_all_to_all", out_request, [&](group::Group& object, group::RequestPtr* posting) {
    group::all_to_all(object, bound_tensor(object, input, "ddp_group_post_all_to_all: input"),
                      bound_tensor(object, output, "ddp_group_post_all_to_all: output"),
                      {counts_of(object, input_counts), counts_of(object, output_counts)}, stream, posting);
  });
}

ddp_status ddp_group_post_all_gather_counts(ddp_group* group, const ddp_tensor* input, const ddp_tensor* output,
                                            const int64_t* counts, ddp_request** out_request, void* stream) {
  constexpr const char* kName = "ddp_group_post_all_gather_counts";
  return post(group, kName, out_request, [&](group::Group& object, group::RequestPtr* posting) {
    require(counts, kName, "counts");
    group::all_gather_counts(object, bound_tensor(object, input, "ddp_group_post_all_gather_counts: input"),
                             bound_tensor(object, output, "ddp_group_post_all_gather_counts: output"),
                             counts_of(object, counts), stream, posting);
  });
}

ddp_status ddp_group_post_send(ddp_group* group, const ddp_tensor* tensor, int32_t peer, int64_t tag,
                               ddp_request** out_request, void* stream) {
  return post(group, "ddp_group_post_send", out_request, [&](group::Group& object, group::RequestPtr* posting) {
    group::send_message(object, bound_tensor(object, tensor, "ddp_group_post_send: tensor"), peer, tag, stream, posting);
  });
}

ddp_status ddp_group_post_receive(ddp_group* group, const ddp_tensor* tensor, int32_t source, int64_t tag,
                                  ddp_request** out_request, void* stream) {
  return post(group, "ddp_group_post_receive", out_request, [&](group::Group& object, group::RequestPtr* posting) {
    group::receive_message(object, bound_tensor(object, tensor, "ddp_group_post_receive: tensor"), source, tag, stream,
                           posting);
  });
}

ddp_status ddp_request_test(ddp_request* request, int32_t* out_done) {
  constexpr const char* kName = "ddp_request_test";
  return guarded([&] {
    const auto posted = posted_of(request, kName);
    require(out_done, kName, "out_done");
    *out_done = or_first_cause(*posted->group, [&] { return posted->request->test(); }) ? 1 : 0;
  });
}

ddp_status ddp_request_wait(ddp_request* request, int64_t timeout_ms, int32_t* out_done) {
  constexpr const char* kName = "ddp_request_wait";
  return guarded(kName, [&] {
    const auto posted = posted_of(request, kName);
    check_timeout(timeout_ms, kName);
    require_outside_program(*posted->group, kName);
    const bool done = or_first_cause(*posted->group, [&] { return posted->request->wait(timeout_ms); });
    if (out_done != nullptr) *out_done = done ? 1 : 0;
  });
}

ddp_status ddp_request_wait_any(const int64_t* ids, int32_t count, int64_t timeout_ms, int32_t* out_index) {
  constexpr const char* kName = "ddp_request_wait_any";
  return guarded(kName, [&] {
    require(ids, kName, "ids");
    require(out_index, kName, "out_index");
    check_timeout(timeout_ms, kName);
    if (count < 1) throw make_error(DDP_ERROR_INVALID_ARGUMENT, "%s: count is %d; it is 1 or more", kName, count);
    std::vector<std::shared_ptr<Posted>> posted;
    std::vector<group::RequestPtr> requests;
    for (int32_t at = 0; at < count; ++at) {
      posted.push_back(posted_of(reinterpret_cast<const ddp_request*>(ids[at]), kName));
      requests.push_back(posted.back()->request);
      require_outside_program(*posted.back()->group, kName);
    }
    int32_t found = -1;
    on_error([&] { static_cast<void>(group::wait_any(requests, timeout_ms, &found)); },
             [&](const Error& error) {
               *out_index = found;
               for (const auto& each : posted)
                 static_cast<void>(try_to([&] { or_first_cause(*each->group, [&] { throw Error(error); }); }));
             });
    *out_index = found;
  });
}

int64_t ddp_request_get_id(const ddp_request* request) {
  return guarded_value<int64_t>(0, [&] {
    static_cast<void>(posted_of(request, "ddp_request_get_id"));
    return reinterpret_cast<int64_t>(request);
  });
}

int32_t ddp_request_get_source(const ddp_request* request) {
  return guarded_value<int32_t>(-1, [&] { return posted_of(request, "ddp_request_get_source")->request->source(); });
}

void ddp_request_destroy(ddp_request* request) {
  (void)guarded([&] {
    if (const auto posted = RequestTable::instance().remove(request))
      posted->request->release();  // another thread may have it
  });
}
