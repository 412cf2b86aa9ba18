# SPDX-License-Identifier: Apache-2.0
"""
    LibDDP

Distributed data parallel training: gradients of many processes are averaged while backward still computes, and every rank takes the
same step. The order of a program:

    Group, Model, add_parameter!, commit!, Adam,
    in every step backward (ready! for each parameter) and step!,
    save_state

Arrays are lent, not copied, and stay alive while they are. Julia is column-major and libddp row-major: an array of size (a, b) is a
tensor of shape [b, a], so no element moves. Indices of parameters, averages and samples count from 1, ranks from 0.

A failed call throws `DDPError` with the library's sentence and its `status`, such as `:PEER_FAILED`. libddp never calls Julia
from a thread of its own.

Tested by bindings/julia/test and tests/bindings.
"""
module LibDDP

using Libdl

export DDPError, Group, group_rank, group_size, barrier, allreduce!, bcast!, reduce_metrics!, average
export Model, add_parameter!, add_buffer!, lend!, commit!, grad, backward, ready!, unused!
export SGD, Adam, CustomOptimizer, EMA, step!, rate!
export save_state, load_state!, save_latest, load_latest!, keep_state, Sampler, indices, BatchNorm, recover!

# The rest of what a program may call: as LibDDP.name, or all of it with `using LibDDP.All`.
const MORE = (:send, :receive!, :ANY_SOURCE, :reduce!, :gather!, :scatter!, :alltoall!, :allgather!, :reducescatter!, :alloc, :free!, :share!, :unshare!, :value, :add_parameter_without_grad!, :set_grad!, :set_buckets!, :reopen!, :remove_parameter!, :remove_buffer!, :was_used, :zero_grad!, :mark_reduced!, :grad_norm, :scale_grad!, :sync_buffers!,
    :check_replicas, :parameter_hash, :stats, :describe_plan, :metadata, :metadata!, :weight!, :last_pass!, :skip_backward, :join!,
    :pass_report, :hook!, :pull!, :Bucket, :contents, :gradients, :allreduce_as!, :average_parameters!, :loss_scale!, :loss_scale,
    :copy_loss_scale!, :skipped_count, :clip_grad_norm!, :clip_grad_value!, :allreduce_rows, :rate, :step_count, :parameter_options!,
    :update_averages!, :swap!, :swapped, :Outer, :sync!, :resumed, :indices!, :forward!, :backward!, :log_level!, :add_log_listener, :remove_log_listener, :group_number, :abort, :group_error,
    :backend, :waits, :stream!, :start_trace, :stop_trace, :trace, :log_metric, :failed_ranks, :joined_ranks, :rank_progress, :parts, :total_parts,
    :part_key, :reduce_part_metrics!, :Request, :isdone, :wait_any, :post_barrier, :post_allreduce!, :post_allgather!, :post_reducescatter!,
    :post_bcast!, :post_reduce!, :post_gather!, :post_scatter!, :post_alltoall!, :post_send, :post_receive!)

include("low.jl")
include("errors.jl")
include("options.jl")
include("arrays.jl")
include("callbacks.jl")
include("group.jl")
include("messages.jl")
include("request.jl")
include("recover.jl")
include("trace.jl")
include("parts.jl")
include("model.jl")
include("hook.jl")
include("backward.jl")
include("uneven.jl")
include("optimizer.jl")
include("ema.jl")
include("outer.jl")
include("state.jl")
include("sampler.jl")
include("batch_norm.jl")
include("show.jl")

"""
    All

All names that a program may call, for `using LibDDP.All`. `using LibDDP` brings those that nearly every program needs.
"""
module All

import ..LibDDP

for name in (names(LibDDP)..., LibDDP.MORE...)
    name === :LibDDP || @eval begin
        import ..LibDDP: $name
        export $name
    end
end

end

# The library: DDP_LIBRARY is its path, or the system finds it. It is opened here, before the first ccall and without deep binding:
# ccall alone would bind the library's C++ exceptions to whatever unwinder Julia brought along.
function __init__()
    path = get(ENV, "DDP_LIBRARY", Low.libddp)
    if Libdl.dlopen(path, Libdl.RTLD_LAZY; throw_error = false) === nothing
        error("The library $path cannot be opened: install libddp, or set DDP_LIBRARY to its path.")
    end
    found, wanted = Low.ddp_version(), Low.DDP_VERSION
    if div(found, 1000) != div(wanted, 1000)
        error("libddp $(version()) was loaded, but this package was made for $(Low.DDP_VERSION_STRING): set DDP_LIBRARY to the right one.")
    end
end

end
