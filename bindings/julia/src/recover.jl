# SPDX-License-Identifier: Apache-2.0
# Going on after ranks have died.

"""
    recover!(group; options...)

Go on with the ranks that are left, after a call on `group` or on what was made from it has broken the group (`LibDDP.group_error(group)` is not `nothing`).
All ranks that are left call; then they repeat the call or step that failed. The group must have been made with `recoverable = 1`. Options are the
fields of `LibDDP.Low.ddp_recover_options`, equal on all ranks: `wait_ms`, `min_ranks`, `allow_half`, `cool_down_ms`.

Ranks are numbered anew: make samplers again. Models, optimizers, averages and arrays stay, and every rank has the parameters, buffers and
optimizers of the last step that all have made; gradients are void. Returns `rank`, `size`, `previous_rank`, `previous_size`, `generation`, `seconds`,
`source`: the rank (of now) whose state all have, from which the program sends what it keeps itself, or `nothing` where all had the same;
`step`: the steps that the optimizers have made, so that step `step` + 1 is repeated, or `nothing` where none counts or a checkpoint has to be loaded;
`gone`: ranks of before that are not there any more; `joined`: ranks of now that are new; `renumbered`: a dictionary from ranks of before to ranks of now; `went_back`: steps that are repeated, and
`kept`: the `epoch`, `step` and `own` bytes of `keep_state`, if all ranks went back to it, or `nothing`.

Fails with `:TOO_FEW_RANKS` where fewer than `min_ranks` are left, with `:NO_MAJORITY` where others may go on without this rank, and with `:FENCED`
where they have.
Collective. No other call may use the group or what was made from it meanwhile, but for `abort`, which waits for the end of the recovery.
"""
function recover!(group::Group; changes...)
    chosen = Ref(options(Low.ddp_recover_options, Low.ddp_recover_options_init; changes...))
    T = Low.ddp_recovery
    found = Ref(T(sizeof(T), 0, 0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0))
    lock(() -> check(Low.ddp_group_recover(group.handle, chosen, found)), group.recovering)
    r = found[]
    return (rank = Int(r.rank), size = Int(r.size), previous_rank = Int(r.previous_rank), previous_size = Int(r.previous_size),
        generation = Int(r.generation), seconds = r.seconds, source = or_nothing(r.source), step = or_nothing(r.step),
        gone = ranks_of(Low.ddp_group_get_gone, group), joined = joined_ranks(group),
        renumbered = Dict(before - 1 => now for (before, now) in enumerate(ranks_of(Low.ddp_group_get_renumbered, group)) if now >= 0),
        went_back = Int(r.went_back), kept = r.kept_epoch < 0 ? nothing : (epoch = Int(r.kept_epoch), step = Int(r.kept_step), own = kept_bytes(group)))
end

function kept_bytes(group::Group)
    count = Ref{Int64}(0)
    bytes = zeros(UInt8, 65_536)
    check(Low.ddp_group_get_kept(group.handle, bytes, length(bytes), count))
    return resize!(bytes, count[])
end

# How many there are, and then which.
function ranks_of(get, group::Group)
    count = Ref{Int32}(0)
    check(get(group.handle, C_NULL, 0, count))
    ranks = zeros(Int32, count[])
    check(get(group.handle, ranks, length(ranks), count))
    return Int.(ranks[1:min(count[], length(ranks))])
end

"""Ranks that broke the group, numbered as in the broken group; empty while the group is whole."""
failed_ranks(group::Group) = ranks_of(Low.ddp_group_get_failed, group)

"""Ranks that the last recovery took in, numbered as now. A rank that has joined is among them, until the next recovery."""
joined_ranks(group::Group) = ranks_of(Low.ddp_group_get_joined, group)

"""
    rank_progress(group, rank)

Where a rank was when it was last heard: the backward `pass` in which it was, counted from 0, or `nothing`; the `bucket` of that pass, or `nothing`;
`silent`, the seconds since it was heard; `call`, the last collective call that it made, as C names it, or `nothing`; and `in_call`: it was in this
call, otherwise it had returned from it and computed.
"""
function rank_progress(group::Group, rank::Integer)
    T = Low.ddp_rank_progress
    found = Ref(T(sizeof(T), 0, 0, 0, 0.0, 0, 0))
    check(Low.ddp_group_get_progress(group.handle, rank, found))
    call = unsafe_string(Low.ddp_call_name(found[].call))
    return (pass = or_nothing(found[].pass_index), bucket = or_nothing(found[].bucket), silent = found[].silent,
        call = isempty(call) ? nothing : call, in_call = found[].in_call != 0)
end

or_nothing(number::Integer) = number < 0 ? nothing : Int(number)
