# Going on after ranks have died.

"""
    recover!(group; options...)

Go on with the ranks that are left, after a call on `group` or on what was made from it failed with `:PEER_FAILED`, `:ABORTED` or `:TIMED_OUT`.
All ranks that are left call; then they repeat the call or step that failed. The group must have been made with `recoverable = 1`. Options are the
fields of `LibDDP.Low.ddp_recover_options`, equal on all ranks: `wait_ms`, `min_ranks`, `allow_half`.

Ranks are numbered anew: make samplers again. Models, optimizers, averages and arrays stay, and every rank has the parameters, buffers and
optimizers of the last step that all have made; gradients are void. Returns `rank`, `size`, `previous_rank`, `previous_size`, `generation`, `seconds`
and `source`: the rank (of now) whose state all have, from which the program sends what it keeps itself, or `nothing` where all had the same.

Fails with `:TOO_FEW_RANKS` where this part of the ranks may not go on, and with `:FENCED` where the others have gone on without this rank.
Collective. No other call may use the group or what was made from it meanwhile, but for `abort`, which waits for the end of the recovery.
"""
function recover!(group::Group; changes...)
    chosen = Ref(options(Low.ddp_recover_options, Low.ddp_recover_options_init; changes...))
    T = Low.ddp_recovery
    found = Ref(T(sizeof(T), 0, 0, 0, 0, 0, 0, 0, 0.0))
    lock(() -> check(Low.ddp_group_recover(group.handle, chosen, found)), group.recovering)
    r = found[]
    return (rank = Int(r.rank), size = Int(r.size), previous_rank = Int(r.previous_rank), previous_size = Int(r.previous_size),
        generation = Int(r.generation), seconds = r.seconds, source = or_nothing(r.source))
end

"""Ranks that broke the group, numbered as in the broken group; empty while the group is whole."""
function failed_ranks(group::Group)
    ranks, count = zeros(Int32, max(group_size(group), 0)), Ref{Int32}(0)
    check(Low.ddp_group_get_failed(group.handle, ranks, length(ranks), count))
    return Int.(ranks[1:min(count[], length(ranks))])
end

"""
    rank_progress(group, rank)

Where a rank was when it was last heard: the backward `pass` in which it was, counted from 0, or `nothing`; the `bucket` of that pass, or `nothing`;
and `silent`, the seconds since it was heard.
"""
function rank_progress(group::Group, rank::Integer)
    T = Low.ddp_rank_progress
    found = Ref(T(sizeof(T), 0, 0, 0, 0.0))
    check(Low.ddp_group_get_progress(group.handle, rank, found))
    return (pass = or_nothing(found[].pass_index), bucket = or_nothing(found[].bucket), silent = found[].silent)
end

or_nothing(number::Integer) = number < 0 ? nothing : Int(number)
