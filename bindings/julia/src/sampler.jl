# SPDX-License-Identifier: Apache-2.0
"""
    Sampler(group, samples; part = nothing, options...)
    Sampler(; options...)

The partition of a data set over the ranks. Options are the fields of `LibDDP.Low.ddp_sampler`: `seed`, `shuffle`, `drop_last`, and so on.
All ranks get the same number of indices, `length(sampler)`. With `part` it is the share of that part of the global batch.
"""
struct Sampler
    fields::Low.ddp_sampler
end

Sampler(; changes...) = Sampler(options(Low.ddp_sampler, Low.ddp_sampler_init; changes...))
function Sampler(group::Group, samples::Integer; part::Union{Integer,Nothing} = nothing, changes...)
    rank, size = part === nothing ? (group_rank(group), group_size(group)) : (part, total_parts(group))
    return Sampler(; dataset_size = samples, rank = rank, size = size, changes...)
end

"""
    resumed(sampler, group, done)

The rest of an epoch for another number of ranks: all ranks have used the first `done` positions of their shares. What is left is dealt out over
the ranks of the group as it is now, from position 1 on; no sample is repeated or left out. Keep a sampler with `seen = 0` for the next epoch.
"""
function resumed(sampler::Sampler, group::Group, done::Integer)
    old = sampler.fields
    seen = min(old.seen + done * old.size, old.dataset_size)
    return Sampler(; dataset_size = old.dataset_size, seed = old.seed, shuffle = old.shuffle, drop_last = old.drop_last, seen = seen,
                   rank = group_rank(group), size = group_size(group))
end

function Base.length(sampler::Sampler)
    count = Ref{Int64}(0)
    check(Low.ddp_sampler_get_count(Ref(sampler.fields), count))
    return Int(count[])
end

"""
    indices!(into, sampler, epoch, first = 1)

This rank's share of an epoch, from position `first` on, as indices of Julia arrays (from 1). Epochs count from 0.
"""
function indices!(into::Vector{Int64}, sampler::Sampler, epoch::Integer, first::Integer = 1)
    isempty(into) && return into
    check(Low.ddp_sampler_fill(Ref(sampler.fields), epoch, first - 1, length(into), into))
    into .+= 1
    return into
end

"""This rank's whole share of an epoch."""
indices(sampler::Sampler, epoch::Integer) = indices!(Vector{Int64}(undef, length(sampler)), sampler, epoch)
