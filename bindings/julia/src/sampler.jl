"""
    Sampler(group, samples; options...)
    Sampler(; options...)

The partition of a data set over the ranks. Options are the fields of `LibDDP.Low.ddp_sampler`: `seed`, `shuffle`, `drop_last`, and so on.
All ranks get the same number of indices, `length(sampler)`.
"""
struct Sampler
    fields::Low.ddp_sampler
end

Sampler(; changes...) = Sampler(options(Low.ddp_sampler, Low.ddp_sampler_init; changes...))
Sampler(group::Group, samples::Integer; changes...) =
    Sampler(; dataset_size = samples, rank = group_rank(group), size = group_size(group), changes...)

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
