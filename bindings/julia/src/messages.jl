# SPDX-License-Identifier: Apache-2.0
# Messages from one rank to one other, and collectives in which ranks give or get different parts. Ranks count from 0, as everywhere.

const ANY_SOURCE = Low.DDP_ANY_SOURCE

"""
    send(group, a; to, tag = 0)

Send an array to one other rank, which receives it with the same tag. Up to 64 KiB are copied; a larger array waits for its receive.
"""
function send(group::Group, a::AbstractArray; to::Integer, tag::Integer = 0)
    GC.@preserve a check(Low.ddp_group_send(group.handle, Ref(describe_bits(a)), to, tag, group.stream))
    return nothing
end

"""
    receive!(group, a; from = ANY_SOURCE, tag = 0)

Receive an array with as many elements from one other rank, or from any. Gives the rank that sent it.
"""
function receive!(group::Group, a::AbstractArray; from::Integer = ANY_SOURCE, tag::Integer = 0)
    source = Ref(Int32(-1))
    GC.@preserve a check(Low.ddp_group_receive(group.handle, Ref(describe_bits(a)), from, tag, source, group.stream))
    return Int(source[])
end

"""
    reduce!(group, a, op = +; root = 0)

Reduce an array over all ranks to rank `root`, which gets the bits of `allreduce!`. What the others have then is undefined.
"""
function reduce!(group::Group, a::AbstractArray, op = +; root::Integer = 0)
    GC.@preserve a check(Low.ddp_group_reduce(group.handle, Ref(describe(a)), reduction(op), root, group.stream))
    return a
end

"""
    gather!(group, output, input; root = 0)

Collect the inputs of all ranks on rank `root`; the others give `nothing` as output.
"""
function gather!(group::Group, output, input::AbstractArray; root::Integer = 0)
    GC.@preserve output input check(
        Low.ddp_group_gather(group.handle, Ref(describe_bits(input)), described(group, output, root), root, group.stream),
    )
    return output
end

"""
    scatter!(group, output, input; root = 0)

Give each rank its part of rank `root`'s input; the others give `nothing` as input.
"""
function scatter!(group::Group, output::AbstractArray, input; root::Integer = 0)
    GC.@preserve output input check(
        Low.ddp_group_scatter(group.handle, described(group, input, root), Ref(describe_bits(output)), root, group.stream),
    )
    return output
end

described(group::Group, a, root::Integer) = group_rank(group) == root && a !== nothing ? Ref(describe_bits(a)) : C_NULL

"""
    alltoall!(group, output, input; given = nothing, taken = nothing)

Give each rank a part of `input`, and get one of each. `given` and `taken` have the number of elements for each rank; `nothing`: equal parts.
"""
function alltoall!(group::Group, output::AbstractArray, input::AbstractArray; given = nothing, taken = nothing)
    mine, theirs = counts(group, given), counts(group, taken)
    GC.@preserve output input mine theirs check(
        Low.ddp_group_all_to_all(group.handle, Ref(describe_bits(input)), Ref(describe_bits(output)), pointer_of(mine), pointer_of(theirs), group.stream),
    )
    return output
end

"""
    allgather!(group, output, input, counts)

Collect the inputs of all ranks on every rank; `counts` has the number of elements of each rank.
"""
function allgather!(group::Group, output::AbstractArray, input::AbstractArray, each::AbstractVector{<:Integer})
    all = counts(group, each)
    GC.@preserve output input all check(
        Low.ddp_group_all_gather_counts(group.handle, Ref(describe_bits(input)), Ref(describe_bits(output)), pointer(all), group.stream),
    )
    return output
end

counts(::Group, ::Nothing) = nothing
function counts(group::Group, given)
    length(given) == group_size(group) || throw(ArgumentError("$(length(given)) counts are given; $(group_size(group)) ranks need one each"))
    return collect(Int64, given)
end
pointer_of(::Nothing) = Ptr{Int64}(C_NULL)
pointer_of(a::Vector{Int64}) = pointer(a)
