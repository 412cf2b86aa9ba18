// SPDX-License-Identifier: Apache-2.0
// NCCL's functions in the file that libddp has opened, called without anything in between; on the fake GPU, which has no
// such file, those of its table.
#include <dlfcn.h>

#include "gpu/ranks_bench/ranks_bench.hpp"
#include "modules/cuda/nccl_api.hpp"

namespace ddp::bench {

using namespace ddp::test::card;

namespace {

const ddp_nccl_table& open_table() {
  static const ddp_nccl_table* const found = [] {
    const ddp_nccl_table* nccl = nullptr;
    std::array<char, 512> error{};
    if (table().open_nccl(getenv("DDP_NCCL_LIBRARY"), &nccl, error.data(), error.size()) != 0)
      throw std::runtime_error(error.data());
    return nccl;
  }();
  return *found;
}

void succeed(int code, const char* what) {
  if (code != 0) throw std::runtime_error(std::string(what) + ": " + open_table().error_text(code));
}

}  // namespace

struct DirectNccl::Calls {
  using InitRank = int (*)(cuda::nccl::Comm**, int, cuda::nccl::UniqueId, int);
  cuda::nccl::Functions nccl{};
  InitRank init_rank = nullptr;
  cuda::nccl::Comm* comm = nullptr;
  void* fake = nullptr;  // a communicator of the table

  template <class Function>
  static void find(void* library, const char* name, Function& out) {
    out = reinterpret_cast<Function>(dlsym(library, name));
    if (out == nullptr) throw std::runtime_error(std::string("NCCL has no ") + name);
  }
  void make(int rank, int size, const std::array<char, DDP_NCCL_ID_BYTES>& id) {
    if (is_fake()) return fake_call(open_table().comm_init(&fake, size, id.data(), rank, "direct", 0));
    void* const library = dlopen(open_table().path, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) throw std::runtime_error(std::string(open_table().path) + " is not loaded");
    find(library, "ncclCommInitRank", init_rank);
    find(library, "ncclCommDestroy", nccl.CommDestroy);
    find(library, "ncclAllReduce", nccl.AllReduce);
    find(library, "ncclReduceScatter", nccl.ReduceScatter);
    find(library, "ncclAllGather", nccl.AllGather);
    cuda::nccl::UniqueId unique{};
    std::memcpy(unique.internal, id.data(), sizeof unique.internal);
    succeed(init_rank(&comm, size, unique, rank), "ncclCommInitRank");
  }
  /// The fake's communicators do not block, as libddp's.
  void settle() const {
    for (int32_t code = -1;;) {
      succeed(open_table().comm_async_error(fake, &code), "comm_async_error");
      if (code == 0) return;
      if (open_table().error_kind(code) != DDP_NCCL_IN_PROGRESS) succeed(code, "NCCL");
    }
  }
  void end() const {
    if (comm != nullptr) (void)nccl.CommDestroy(comm);
    if (fake != nullptr) (void)open_table().comm_abort(fake);
  }
  void fake_call(int32_t code) const {
    if (open_table().error_kind(code) != DDP_NCCL_IN_PROGRESS) return succeed(code, "NCCL");
    settle();
  }
};

DirectNccl::DirectNccl(ddp_group* group, Place place) : calls_(new Calls) {
  place.make_current();
  std::array<char, DDP_NCCL_ID_BYTES> id{};
  if (ddp_group_get_rank(group) == 0) succeed(open_table().get_unique_id(id.data()), "ncclGetUniqueId");
  const ddp_tensor shared = flat(id.data(), DDP_U8, DDP_NCCL_ID_BYTES, kCpu);
  OK(ddp_group_broadcast(group, &shared, 0, nullptr));
  calls_->make(ddp_group_get_rank(group), ddp_group_get_size(group), id);
}

DirectNccl::~DirectNccl() {
  calls_->end();
  delete calls_;
}

void DirectNccl::all_reduce(void* data, int64_t count, void* stream) const {
  if (calls_->comm == nullptr)
    return calls_->fake_call(open_table().all_reduce(data, data, count, DDP_F32, DDP_GPU_SUM, calls_->fake, stream));
  succeed(calls_->nccl.AllReduce(data, data, static_cast<size_t>(count), cuda::nccl::kFloat32, cuda::nccl::kSum,
                                 calls_->comm, stream),
          "ncclAllReduce");
}

void DirectNccl::reduce_scatter(const void* send, void* receive, int64_t receive_count, void* stream) const {
  if (calls_->comm == nullptr)
    return calls_->fake_call(
        open_table().reduce_scatter(send, receive, receive_count, DDP_F32, DDP_GPU_SUM, calls_->fake, stream));
  succeed(calls_->nccl.ReduceScatter(send, receive, static_cast<size_t>(receive_count), cuda::nccl::kFloat32,
                                     cuda::nccl::kSum, calls_->comm, stream),
          "ncclReduceScatter");
}

void DirectNccl::all_gather(const void* send, void* receive, int64_t send_count, void* stream) const {
  if (calls_->comm == nullptr)
    return calls_->fake_call(open_table().all_gather(send, receive, send_count, DDP_F32, calls_->fake, stream));
  succeed(calls_->nccl.AllGather(send, receive, static_cast<size_t>(send_count), cuda::nccl::kFloat32, calls_->comm, stream),
          "ncclAllGather");
}

}  // namespace ddp::bench
