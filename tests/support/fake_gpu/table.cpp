// SPDX-License-Identifier: Apache-2.0
#include "support/fake_gpu/calls.hpp"
#include "support/fake_gpu/codes.hpp"
#include "support/fake_gpu/nccl.hpp"

namespace ddp::test::fake_gpu {
namespace {

void add_kernels(ddp_gpu_table& t) {
  t.move = entry::move;
  t.exchange = entry::exchange;
  t.ema = entry::ema;
  t.adam = entry::adam;
  t.sgd = entry::sgd;
  t.add_norm_terms = entry::add_norm_terms;
  t.largest = entry::largest;
  t.decide = entry::decide;
  t.copy_word = entry::copy_word;
  t.copy_bytes = entry::copy_bytes;
  t.move_quotient = entry::move_quotient;
  t.tree_sum = entry::tree_sum;
  t.plan_step = entry::plan_step;
  t.planned_adam = entry::planned_adam;
  t.planned_sgd = entry::planned_sgd;
  t.hash = entry::hash;
  t.bn_scratch_bytes = entry::bn_scratch_bytes;
  t.bn_moments = entry::bn_moments;
  t.bn_join = entry::bn_join;
  t.bn_apply = entry::bn_apply;
  t.bn_sums = entry::bn_sums;
  t.bn_slopes = entry::bn_slopes;
  t.bn_apply_backward = entry::bn_apply_backward;
}

ddp_gpu_table make_table() {
  ddp_gpu_table t{};
  t.struct_size = sizeof t;
  t.version = DDP_GPU_VERSION;
  t.name = "fake GPU";
  t.error_name = code_name;
  t.error_text = code_text;
  t.error_kind = code_kind;
  t.driver_version = entry::driver_version;
  t.device_count = entry::device_count;
  t.device_name = entry::device_name;
  t.get_device = entry::get_device;
  t.device_is_used = entry::device_is_used;
  t.set_device = entry::set_device;
  t.synchronize = entry::synchronize;
  t.load_kernels = entry::load_kernels;
  t.alloc = entry::alloc;
  t.free = entry::free;
  t.host_alloc = entry::host_alloc;
  t.host_free = entry::host_free;
  t.pointer_device = entry::pointer_device;
  t.stream_create = entry::stream_create;
  t.stream_destroy = entry::stream_destroy;
  t.stream_synchronize = entry::stream_synchronize;
  t.stream_is_capturing = entry::stream_is_capturing;
  t.stream_capture = entry::stream_capture;
  t.event_create = entry::event_create;
  t.event_destroy = entry::event_destroy;
  t.event_record = entry::event_record;
  t.event_synchronize = entry::event_synchronize;
  t.event_query = entry::event_query;
  t.event_elapsed = entry::event_elapsed;
  t.stream_wait = entry::stream_wait;
  t.copy = entry::copy;
  t.fill = entry::fill;
  t.relax_capture = entry::relax_capture;
  add_kernels(t);
  t.open_nccl = entry::open_nccl;
  t.find_nccl = entry::find_nccl;
  return t;
}

ddp_nccl_table make_nccl_table() {
  ddp_nccl_table t{};
  t.struct_size = sizeof t;
  t.library_version = Options{}.nccl_version;
  t.path = "fake NCCL";
  t.error_text = nccl_code_text;
  t.error_kind = nccl_code_kind;
  t.last_error = nccl_entry::last_error;
  t.get_unique_id = nccl_entry::get_unique_id;
  t.comm_init = nccl_entry::comm_init;
  t.comm_abort = nccl_entry::comm_abort;
  t.comm_finalize = nccl_entry::comm_finalize;
  t.comm_destroy = nccl_entry::comm_destroy;
  t.comm_async_error = nccl_entry::comm_async_error;
  t.all_reduce = nccl_entry::all_reduce;
  t.reduce_scatter = nccl_entry::reduce_scatter;
  t.all_gather = nccl_entry::all_gather;
  t.broadcast = nccl_entry::broadcast;
  t.group_start = nccl_entry::group_start;
  t.group_end = nccl_entry::group_end;
  t.mem_alloc = nccl_entry::mem_alloc;
  t.mem_free = nccl_entry::mem_free;
  t.comm_register = nccl_entry::comm_register;
  t.comm_deregister = nccl_entry::comm_deregister;
  t.comm_count = nccl_entry::comm_count;
  t.comm_user_rank = nccl_entry::comm_user_rank;
  t.comm_device = nccl_entry::comm_device;
  t.send = nccl_entry::send;
  t.receive = nccl_entry::receive;
  return t;
}

ddp_nccl_table& changeable_nccl() {
  static ddp_nccl_table one = make_nccl_table();
  return one;
}

}  // namespace

const ddp_gpu_table& table() noexcept {
  static const ddp_gpu_table one = make_table();
  return one;
}

const ddp_nccl_table& nccl() noexcept { return changeable_nccl(); }

void set_nccl_version(int32_t version) {
  ddp_nccl_table& t = changeable_nccl();
  t.library_version = version;
}

}  // namespace ddp::test::fake_gpu
