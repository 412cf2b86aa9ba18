# SPDX-License-Identifier: Apache-2.0
# Parts of the global batch: the same bits at any number of ranks.

function virtual_ranks(group::Group)
    T = Low.ddp_virtual_ranks
    found = Ref(T(sizeof(T), 0, 0, 0, 0))
    check(Low.ddp_group_get_virtual_ranks(group.handle, found))
    return found[]
end

"""
    parts(group)

Which parts of the global batch are this rank's, counted from 0, if the group was made with `virtual_ranks`: training has the same bits at any
number of ranks up to that. Otherwise one, whose number is the rank. They change when `recover!` has returned. A step works on them one
after the other: `backward` with `part`, samples of `Sampler(group, samples; part = part)`, random numbers from `part_key`.
"""
function parts(group::Group)
    found = virtual_ranks(group)
    return Int(found.first):Int(found.first + found.count - 1)
end

"""Parts of the global batch: `virtual_ranks`, or the number of ranks."""
total_parts(group::Group) = Int(virtual_ranks(group).total)

"""
    part_key(seed, step, part)

A key for the random numbers (dropout, augmentation) of one part in one step, the same wherever the part runs. The sequence is frozen.
"""
function part_key(seed::Integer, step::Integer, part::Integer)
    key = Ref{Int64}(0)
    check(Low.ddp_virtual_rank_key(seed, step, part, key))
    return key[]
end

"""
    reduce_part_metrics!(group, values, op = +)

As `reduce_metrics!`, with a column of `values` for each of this rank's parts: summed in the tree over all parts, so the result, which is
returned, has the same bits at any number of ranks. It takes the place of the first column; the others are undefined afterwards.
"""
function reduce_part_metrics!(group::Group, values::Matrix{Float64}, op = +)
    size(values, 2) == length(parts(group)) || throw(ArgumentError("this rank has $(length(parts(group))) parts; give a column for each"))
    check(Low.ddp_group_reduce_part_metrics(group.handle, values, size(values, 1), reduction(op)))
    return values[:, 1]
end
